"""The text of a KFP `component.yaml`, read with its lines: what is not understood is named, never passed over."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import BuildError
from .words import IfPresent, Joined, Place, Word

if TYPE_CHECKING:
    import yaml

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
    """What a component.yaml says."""

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
        BuildError: It is no component of one container, or uses what is not supported here.
    """
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise BuildError(f"no YAML: {getattr(error, 'problem', error)}", where=f"{where}{line}") from None
    if root is None:
        raise BuildError("it is empty", where=where, fix="name a component.yaml")
    try:
        return _Reader(where).component(root)
    except RecursionError:
        raise BuildError("it holds itself", where=where, fix="write out what an alias stands for") from None


class _Reader:
    """Reads nodes of YAML; every error names the line."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.inputs: dict[str, Port] = {}
        self.outputs: dict[str, Port] = {}
        self.passed: set[str] = set()  # the inputs that some `inputValue` names

    def component(self, root: yaml.Node) -> KfpComponent:
        top = self.fields(
            root, "a component", ("name", "description", "metadata", "inputs", "outputs", "implementation")
        )
        if "implementation" in top:
            self.passed = set(_passed(top["implementation"]))
        for key, kind in (("inputs", self.inputs), ("outputs", self.outputs)):
            for node in self.items(top[key]) if key in top else ():
                port = self.port(node, key[:-1])
                if port.name in kind or any(port.key == other.key for other in kind.values()):
                    raise self.wrong(node, f"two {key} are called {port.name!r}", "rename one")
                kind[port.name] = port
        if "implementation" not in top:
            raise self.wrong(root, "there is no implementation", "give `implementation: container:`")
        body = self.fields(top["implementation"], "implementation", ("container",))
        if "container" not in body:
            raise self.wrong(top["implementation"], "the implementation is no container", "give `container:`")
        container = self.fields(body["container"], "container", ("image", "command", "args", "env"))
        if "image" not in container:
            raise self.wrong(body["container"], "the container has no image", "give `image:`")
        env = self.mapping(container["env"], "env") if "env" in container else {}
        return KfpComponent(
            self.text(top["name"]) if "name" in top else "",
            self.text(top["description"]) if "description" in top else "",
            tuple(self.inputs.values()),
            tuple(self.outputs.values()),
            self.text(container["image"]),
            self.words(container.get("command")),
            self.words(container.get("args")),
            {key: self.word(node) for key, node in env.items()},
        )

    def port(self, node: yaml.Node, what: str) -> Port:
        known = ("name", "type", "description", "annotations", *(("default", "optional") if what == "input" else ()))
        body = self.fields(node, f"an {what}", known)
        if "name" not in body:
            raise self.wrong(node, f"an {what} has no name", "give `name:`")
        name = self.text(body["name"])
        kind = self.type(body["type"]) if "type" in body else ""
        hint = _VALUES.get(kind.lower())
        if what == "input" and not kind and name in self.passed:
            hint = str  # as KFP's first version has it: without a type, any text
        optional = "optional" in body and self.value(body["optional"]) is True
        default = self.default(body["default"], hint) if "default" in body else _NONE
        if default is None:  # as KFP reads it: it need not be given
            optional, default = True, _NONE
        return Port(name, python_name(name), kind, hint, optional, default, node.start_mark.line + 1)

    def type(self, node: yaml.Node) -> str:
        """A type's name: `String`, `{GCSPath: {…}}`, `List[str]`, `system.Dataset@0.0.1`."""
        value = self.value(node)
        if isinstance(value, dict) and len(value) == 1:
            value = next(iter(value))
        if not isinstance(value, str):
            raise self.wrong(node, f"{value!r:.60} is no type", "give its name")
        name = value.partition("[")[0].partition("@")[0].removeprefix("system.")
        return re.sub(r"\W", "", name)

    def default(self, node: yaml.Node, hint: Any) -> Any:
        value = self.value(node)
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
        except (TypeError, ValueError):
            raise self.wrong(node, f"the default {value!r:.60} is no {hint.__name__}", "give one") from None

    def words(self, node: yaml.Node | None) -> tuple[Word, ...]:
        return () if node is None else tuple(self.word(each) for each in self.items(node))

    def word(self, node: yaml.Node) -> Word:
        import yaml

        if isinstance(node, yaml.ScalarNode):
            return self.text(node)
        body = self.mapping(node, "a placeholder")
        if len(body) != 1:
            raise self.wrong(node, f"a placeholder has {len(body)} fields", "give one, e.g. `inputValue: name`")
        ((key, value),) = body.items()
        if key in ("inputValue", "inputPath", "inputUri"):
            return self.input(key, value)
        if key in ("outputPath", "outputUri"):
            port = self.known(value, self.outputs, "output")
            if port.hint is not None:
                return Place("output", port.key)
            return Joined((Place("output", port.key), "/data")) if key == "outputPath" else Place("output", port.key)
        if key == "concat":
            return Joined(tuple(self.word(each) for each in self.items(value)))
        if key == "if":
            return self.choice(value)
        raise self.wrong(node, f"the placeholder {key!r} is not supported", "use inputValue, inputPath or outputPath")

    def input(self, key: str, node: yaml.Node) -> Word:
        port = self.known(node, self.inputs, "input")
        if port.hint is None:
            if key == "inputValue":
                raise self.wrong(
                    node,
                    f"the input {port.name!r} is an artifact, and inputValue passes values",
                    "give it a type such as String, or use inputPath",
                )
            return Place("data" if key == "inputPath" else "input", port.key)
        if key == "inputUri":
            raise self.wrong(node, f"the input {port.name!r} is a value, which has no URI", "use inputValue")
        return Place("parameter" if key == "inputValue" else "text", port.key)

    def choice(self, node: yaml.Node) -> Word:
        body = self.fields(node, "if", ("cond", "then", "else"))
        if "cond" not in body or "then" not in body:
            raise self.wrong(node, "an `if` needs cond and then", "give both")
        condition = self.fields(body["cond"], "cond", ("isPresent",))
        if "isPresent" not in condition:
            raise self.wrong(body["cond"], "only isPresent is supported as a condition", "give `isPresent: input`")
        port = self.known(condition["isPresent"], self.inputs, "input")
        return IfPresent(port.key, self.branch(body["then"]), self.branch(body["else"]) if "else" in body else ())

    def branch(self, node: yaml.Node) -> tuple[Word, ...]:
        import yaml

        return self.words(node) if isinstance(node, yaml.SequenceNode) else (self.word(node),)

    def known(self, node: yaml.Node, ports: Mapping[str, Port], what: str) -> Port:
        name = self.text(node)
        if name not in ports:
            raise self.wrong(node, f"there is no {what} {name!r}", f"it has {', '.join(ports) or 'none'}")
        return ports[name]

    def fields(self, node: yaml.Node, what: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        body = self.mapping(node, what)
        for key, value in body.items():
            if key not in known:
                raise self.wrong(
                    value, f"{what} has the field {key!r}, which is not supported", f"use {', '.join(known)}"
                )
        return body

    def mapping(self, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
        import yaml

        if not isinstance(node, yaml.MappingNode):
            raise self.wrong(node, f"{what} is no mapping", "write `field: value`")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if self.text(key) in found:
                raise self.wrong(key, f"{what} has {self.text(key)!r} twice", "remove one")
            found[self.text(key)] = value
        return found

    def items(self, node: yaml.Node) -> list[yaml.Node]:
        import yaml

        if not isinstance(node, yaml.SequenceNode):
            raise self.wrong(node, "a list is expected", "write `- item`")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            raise self.wrong(node, "text is expected", "write one word, or text in quotes")
        return str(node.value)

    def value(self, node: yaml.Node) -> Any:  # Any: YAML
        import yaml

        return yaml.SafeLoader("").construct_document(node)

    def wrong(self, node: yaml.Node, message: str, fix: str) -> BuildError:
        return BuildError(message, where=f"{self.where}:{node.start_mark.line + 1}", fix=fix)


def _passed(root: yaml.Node) -> Iterator[str]:
    """The inputs that a piece of YAML passes as values."""
    import yaml

    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            todo += [value for _, value in node.value]
            yield from (str(value.value) for key, value in node.value if key.value == "inputValue")
        elif isinstance(node, yaml.SequenceNode):
            todo += node.value


def python_name(name: str) -> str:
    """A name as KFP makes it one of Python: lower case, and `_` for whatever is no letter or digit."""
    plain = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")
    return f"n{plain}" if plain[:1].isdigit() else plain
