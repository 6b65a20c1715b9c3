"""The text of a KFP `component.yaml`, read with its lines: what is not understood is named, never passed over."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import BuildError
from .placeholders import Concatenation, IfPresent, Reference, Word

if TYPE_CHECKING:
    from ...yaml_lines import YamlValue

# KFP's names of types that are values, lower case, and ours.
_VALUES: Mapping[str, type] = {
    "integer": int, "int": int, "double": float, "float": float, "string": str, "str": str, "text": str,
    "bool": bool, "boolean": bool, "dict": dict, "list": list, "jsonobject": dict, "jsonarray": list,
}  # fmt: skip
_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
_NONE = inspect.Parameter.empty


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Attributes:
        name: As KFP spells it.
        key: As a Python name.
        type: KFP's type, "" for none.
        hint: The type of its values; None for an artifact.
        optional: Whether an input may be left out.
        default: Its default; `inspect.Parameter.empty` for none.
        line: Where it stands.
    """

    name: str
    key: str
    type: str
    hint: Any
    optional: bool = False
    default: Any = _NONE
    line: int = 0


@dataclass(frozen=True)
class KfpComponent:
    """A KFP component of one container, as its component.yaml declares it."""

    name: str
    description: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    image: str
    command: tuple[Word, ...]
    args: tuple[Word, ...]
    env: Mapping[str, Word]


def parse(text: str, where: str) -> KfpComponent:
    """Read a component.

    Args:
        text: The YAML.
        where: What to call it in errors.

    Raises:
        BuildError: It is not a component of one container, or uses what is not supported here.
    """
    from ...yaml_lines import read_yaml

    root = read_yaml(text, where, name="a component", error_class=BuildError)
    if root is None:
        raise BuildError("it is empty", where=where, fix="name a component.yaml")
    return _ComponentReader().component(root)


class _ComponentReader:
    """A component's ports first, then its command, whose placeholders name them."""

    def __init__(self) -> None:
        self.inputs: dict[str, Port] = {}
        self.outputs: dict[str, Port] = {}
        self.passed: set[str] = set()  # the inputs that some `inputValue` names

    def component(self, root: YamlValue) -> KfpComponent:
        top = _entries(root, ("name", "description", "metadata", "inputs", "outputs", "implementation"))
        if "implementation" in top:
            self.passed = set(_passed(top["implementation"]))
        for key, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            for node in top[key].items() if key in top else ():
                port = self.port(node, key[:-1])
                # By key too: two of KFP's names may become the same Python name.
                if port.name in ports or any(port.key == other.key for other in ports.values()):
                    raise node.error(f"two {key} are called {port.name!r}", "rename one")
                ports[port.name] = port
        if "implementation" not in top:
            raise root.error("there is no implementation", "give `implementation: container:`")
        body = _entries(top["implementation"].called("implementation"), ("container",))
        if "container" not in body:
            raise top["implementation"].error("the implementation is not a container", "give `container:`")
        container = _entries(body["container"].called("container"), ("image", "command", "args", "env"))
        if "image" not in container:
            raise body["container"].error("the container has no image", "give `image:`")
        env = container["env"].mapping() if "env" in container else {}
        return KfpComponent(
            top["name"].text() if "name" in top else "",
            top["description"].text() if "description" in top else "",
            tuple(self.inputs.values()),
            tuple(self.outputs.values()),
            container["image"].text(),
            self.words(container.get("command")),
            self.words(container.get("args")),
            {key: self.word(node) for key, node in env.items()},
        )

    def port(self, node: YamlValue, what: str) -> Port:
        known = ("name", "type", "description", "annotations", *(("default", "optional") if what == "input" else ()))
        body = _entries(node.called(f"an {what}"), known)
        if "name" not in body:
            raise node.error(f"an {what} has no name", "give `name:`")
        name = body["name"].text()
        kind = self.type(body["type"]) if "type" in body else ""
        hint = _VALUES.get(kind.lower())
        if what == "input" and not kind and name in self.passed:
            hint = str  # as KFP's first version has it: without a type, any text
        optional = "optional" in body and body["optional"].yaml_1_1() is True
        default = self.default(body["default"], hint) if "default" in body else _NONE
        if default is None:  # as KFP reads it: it need not be given
            optional, default = True, _NONE
        return Port(name, python_name(name), kind, hint, optional, default, node.line)

    def type(self, node: YamlValue) -> str:
        """A type's name: `String`, `{GCSPath: {…}}`, `List[str]`, `system.Dataset@0.0.1`."""
        value = node.yaml_1_1()
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value))
        if not isinstance(value, str):
            raise node.error(f"{value!r:.60} is not a type", "give its name")
        name = value.partition("[")[0].partition("@")[0].removeprefix("system.")
        return re.sub(r"\W", "", name)

    def default(self, node: YamlValue, hint: Any) -> Any:
        value = node.yaml_1_1()
        if hint is None or value is None:
            return value
        try:
            if isinstance(value, str) and hint is bool:
                if value.lower() not in (*_TRUE, *_FALSE):
                    raise ValueError
                return value.lower() in _TRUE
            if isinstance(value, str) and hint in (list, dict):
                value = json.loads(value)
            if hint in (list, dict) and not isinstance(value, hint):
                raise ValueError
            return value if isinstance(value, hint) else hint(str(value) if hint is str else value)
        except (TypeError, ValueError, RecursionError):
            raise node.error(f"the default {value!r:.60} is not of type {hint.__name__}", "give one") from None

    def words(self, node: YamlValue | None) -> tuple[Word, ...]:
        return () if node is None else tuple(self.word(each) for each in node.items())

    def word(self, node: YamlValue) -> Word:
        if node.is_scalar:
            return node.text()
        body = node.called("a placeholder").mapping()
        if len(body) != 1:
            raise node.error(f"a placeholder has {len(body)} fields", "give one, e.g. `inputValue: name`")
        ((key, value),) = body.items()
        if key in ("inputValue", "inputPath", "inputUri"):
            return self.input(key, value)
        if key in ("outputPath", "outputUri"):
            port = self.known(value, self.outputs, "output")
            if port.hint is not None:
                return Reference("output", port.key)
            return (
                Concatenation((Reference("output", port.key), "/data"))
                if key == "outputPath"
                else Reference("output", port.key)
            )
        if key == "concat":
            return Concatenation(tuple(self.word(each) for each in value.items()))
        if key == "if":
            return self.choice(value)
        raise node.error(f"the placeholder {key!r} is not supported", "use inputValue, inputPath or outputPath")

    def input(self, key: str, node: YamlValue) -> Word:
        port = self.known(node, self.inputs, "input")
        if port.hint is None:
            if key == "inputValue":
                raise node.error(
                    f"the input {port.name!r} is an artifact, and inputValue passes values",
                    "give it a type such as String, or use inputPath",
                )
            return Reference("data" if key == "inputPath" else "input", port.key)
        if key == "inputUri":
            raise node.error(f"the input {port.name!r} is a value, which has no URI", "use inputValue")
        return Reference("parameter" if key == "inputValue" else "text", port.key)

    def choice(self, node: YamlValue) -> Word:
        body = _entries(node.called("if"), ("cond", "then", "else"))
        if "cond" not in body or "then" not in body:
            raise node.error("an `if` needs cond and then", "give both")
        condition = _entries(body["cond"].called("cond"), ("isPresent",))
        if "isPresent" not in condition:
            raise body["cond"].error("only isPresent is supported as a condition", "give `isPresent: input`")
        port = self.known(condition["isPresent"], self.inputs, "input")
        return IfPresent(port.key, self.branch(body["then"]), self.branch(body["else"]) if "else" in body else ())

    def branch(self, node: YamlValue) -> tuple[Word, ...]:
        return self.words(node) if node.is_list else (self.word(node),)

    def known(self, node: YamlValue, ports: Mapping[str, Port], what: str) -> Port:
        name = node.text()
        if name not in ports:
            raise node.error(f"there is no {what} {name!r}", f"it has {', '.join(ports) or 'none'}")
        return ports[name]


def _entries(value: YamlValue, known: tuple[str, ...]) -> dict[str, YamlValue]:
    return value.mapping(known, unknown="unsupported field")


def _passed(value: YamlValue) -> Iterator[str]:
    """The inputs that a piece of YAML passes as values."""
    if value.is_mapping:
        for key, entry in value.mapping().items():
            if key == "inputValue" and entry.is_scalar:
                yield entry.text()
            yield from _passed(entry)
    elif value.is_list:
        for item in value.items():
            yield from _passed(item)


def python_name(name: str) -> str:
    """A name as KFP makes it one of Python: lower case, and `_` for whatever is neither a letter nor a digit."""
    plain = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")
    return f"n{plain}" if plain[:1].isdigit() else plain
