"""YAML that people write, read strictly: every value knows its line, and nothing is made into what nobody wrote.

`read_yaml` refuses what no reader wants (a key twice, half a character, aliases that expand without end); a `YamlValue`
then gives its entries, items, texts and numbers, or an error that names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import yaml
from yaml.composer import Composer

from .errors import DrivetrainError, InputError, suggest

_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_INFINITE: Final = {sign + ".inf": float(sign + "inf") for sign in ("", "+", "-")}
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_BOOLEANS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")
_MAX_DIGITS: Final = 300
"""Of a number, which a float then holds; Python takes quadratic time to read a long one. Longer ones are text."""
_MAX_DEPTH: Final = 200
"""Of nodes within nodes. Readers recurse, so this must stay well below Python's limit of 1000 frames."""
_MAX_ALIASED: Final = 100_000
"""Nodes that aliases may add. Ten lines of ten aliases each would otherwise stand for 10^10 nodes."""


class YamlValue(NamedTuple):
    """A value of a YAML file, and where it stands.

    Every method that reads it raises `error_class` at its line where it is not what is asked for.

    Attributes:
        file: The file's name, for messages.
        name: What messages call it, with the names above it: "defaults.pvcs".
        node: As PyYAML composed it.
        error_class: What its errors are.
        is_root: Whether it is the whole document, whose entries are named by their keys alone.
    """

    file: str
    name: str
    node: yaml.Node
    error_class: type[DrivetrainError] = InputError
    is_root: bool = False

    @property
    def line(self) -> int:
        """The file's line on which it begins, counted from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def where(self) -> str:
        """The file and that line, as errors give them: "schema.yaml:12"."""
        return f"{self.file}:{self.line}"

    @property
    def is_scalar(self) -> bool:
        """Whether it is neither a list nor a mapping."""
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        """Whether it is a mapping."""
        return isinstance(self.node, yaml.MappingNode)

    def called(self, name: str) -> YamlValue:
        """The same value, called otherwise in messages."""
        return self._replace(name=name)

    def error(self, message: str, fix: str) -> DrivetrainError:
        """An error at its line, to be raised."""
        return self.error_class(message, fix=fix, where=self.where)

    def mapping(
        self, known: Sequence[str] | None = None, *, required: Sequence[str] = (), unknown: str = "unknown key"
    ) -> dict[str, YamlValue]:
        """A mapping's entries in their order.

        Args:
            known: The keys that it may have; any where None.
            required: Those that it must have.
            unknown: What a message calls a key that is not known.
        """
        if not self.is_mapping:
            raise self.error(f"{self.name} must be `key: value` lines", "write `key: value` lines below it")
        entries: dict[str, YamlValue] = {}
        for key_node, node in self.node.value:
            key = str(key_node.value)
            if known is not None and key not in known:
                raise self._replace(node=key_node).error(
                    f"{self.name}: {unknown} {key!r}", suggest(key, list(known), "use")
                )
            entries[key] = self._part(self._below(key), node)
        for key in required:
            if key not in entries:
                raise self.error(f"{self.name} has no {key}:", f"add {key}: to it")
        return entries

    def items(self) -> list[YamlValue]:
        """A list's items in their order, each named by its index: "columns[3]"."""
        if not self.is_list:
            raise self.error(f"{self.name} must be a list", "write `- item` lines, or [item, ...]")
        return [self._replace(name=f"{self.name}[{i}]", node=node) for i, node in enumerate(self.node.value)]

    def texts(self) -> tuple[str, ...]:
        """A list of scalars as they are spelled."""
        return tuple(item.text() for item in self.items())

    def text(self) -> str:
        """A scalar as it is spelled: `NO`, `1` and `9E` are texts here, whatever YAML would make of them."""
        if not self.is_scalar:
            raise self.error(f"{self.name} must be one value, not a list or a mapping", "write one word, or a text")
        return str(self.node.value)

    def string(self, *, empty: bool = False) -> str:
        """What every YAML reader takes for a text: numbers, booleans and `NO` want quotes.

        Args:
            empty: Whether a text of no characters is one.
        """
        if not self.is_scalar or self.node.tag != "tag:yaml.org,2002:str":
            shown = self.node.value if self.is_scalar else "more than one value"
            raise self.error(f"{self.name} is not text: {shown}", f'put it into quotes: "{shown}"')
        if not self.node.value and not empty:
            raise self.error(f"{self.name} is empty", "write a value, or leave it out")
        return str(self.node.value)

    def choice(self, *options: str) -> str:
        """A text that must be one of the options."""
        text = self.string()
        if text not in options:
            raise self.error(f"{self.name} is {text!r}", f"write {', '.join(options[:-1])} or {options[-1]}")
        return text

    def scalar(self) -> Any:  # Any: the callers check
        """A scalar by the rules of YAML 1.2 (text where it stands in quotes); None for a list or a mapping."""
        if not self.is_scalar:
            return None
        text = str(self.node.value)
        if getattr(self.node, "style", None):  # in quotes, or a block of text; "" is libyaml's for plain
            return text
        if text.lower() in _CONSTANTS:
            return _CONSTANTS[text.lower()]
        if _NUMBER.fullmatch(text) and len(text) <= _MAX_DIGITS:
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        return _INFINITE.get(text.lower(), text)

    def number(self) -> float:
        """A number by YAML 1.2, an int where it is spelled as one, perhaps infinite; no boolean, no quoted text."""
        number = self.scalar()
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise self.error(f"{self.name}: a number is wanted", "e.g. 0.95")
        return number

    def whole(self) -> int:
        """An int: a number that is spelled with digits and a sign only, so `1.0` and `1e3` are refused."""
        number = self.number()
        if not isinstance(number, int):
            raise self.error(f"{self.name}: a whole number is wanted", "e.g. 100")
        return number

    def boolean(self) -> bool:
        """A boolean, in the spellings of YAML 1.1 too (yes, no, on, off), but not as a quoted text."""
        value = self.scalar()
        if isinstance(value, str) and not getattr(self.node, "style", None):
            value = _BOOLEANS.get(value.lower())  # yes, no, on, off: YAML 1.1's
        if not isinstance(value, bool):
            raise self.error(f"{self.name} is neither true nor false", "write true or false")
        return value

    def json(self) -> Any:  # Any: JSON
        """JSON's values by YAML 1.2; `NO`, 2013-01-01 and 12:30 are texts, whatever YAML 1.1 would make of them."""
        if self.is_list:
            return [item.json() for item in self.items()]
        if self.is_mapping:
            return {key: entry.json() for key, entry in self.mapping().items()}
        return self.scalar()

    def yaml_1_1(self) -> Any:  # Any: YAML
        """What PyYAML's safe loader makes of it: for files that another tool reads so."""
        try:
            return yaml.SafeLoader("").construct_document(self.node)
        except (yaml.YAMLError, ValueError) as error:  # a tag that it does not know; a day that does not exist
            raise self.error(f"{self.name} cannot be read: {getattr(error, 'problem', error)}", "correct it") from None

    def _part(self, name: str, node: yaml.Node) -> YamlValue:
        # Not by `_replace`, which takes several times as long: there is one for each node.
        return YamlValue(self.file, name, node, self.error_class)

    def _below(self, key: str) -> str:
        return key if self.is_root else f"{self.name}.{key}"


def read_yaml(text: str, file: str, *, name: str, error_class: type[DrivetrainError] = InputError) -> YamlValue | None:
    """The only document of a text; None where it is empty.

    Args:
        text: YAML.
        file: The file's name, for messages.
        name: What messages call the whole of it, e.g. "the schema".
        error_class: What to raise, here and later from its values.

    Raises:
        DrivetrainError: Of the class that was named: it is not YAML, is nested too deeply, has a key twice or one that
            is not text, half a character, or an alias that stands for itself or for too much.
    """
    return next(iter(_read(_compose, text, file, name, error_class)), None)


def load_documents(
    text: str, file: str, *, name: str, error_class: type[DrivetrainError] = InputError
) -> list[Any]:  # Any: YAML
    """The documents of a text that are not empty, as PyYAML's safe loader makes them; raises as `read_yaml`."""
    values = [document.yaml_1_1() for document in _read(_compose_all, text, file, name, error_class)]
    return [value for value in values if value is not None]


def _read(
    composing: Callable[[str, Any], Iterable[yaml.Node | None]],
    text: str,
    file: str,
    name: str,
    error_class: type[DrivetrainError],
) -> list[YamlValue]:
    try:
        nodes = _composed(composing, text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        # A bracket that is not closed, say: the fault is noticed below the line that has it.
        begun = error.context_mark.line + 1 if error.context_mark else line
        fix = "correct the line" if begun == line else f"correct the line, or line {begun}, where this began"
        raise error_class(f"not YAML: {error.problem}", fix=fix, where=f"{file}:{line}") from None
    except yaml.YAMLError as error:  # a control character, which has no line
        raise error_class(f"not YAML: {error}", fix="remove it", where=file) from None
    except RecursionError:
        raise error_class(f"{name} is nested too deeply", fix="correct it", where=file) from None
    documents = [YamlValue(file, name, node, error_class, is_root=True) for node in nodes]
    for document in documents:
        _check(document, _SeenNodes())
    return documents


def compose(text: str) -> yaml.Node | None:
    """The text's node, None where it is empty; by libyaml where PyYAML was built with it, several times as fast.

    Raises:
        yaml.YAMLError: It is not YAML.
        RecursionError: It is nested too deeply.
    """
    return next(iter(_composed(_compose, text)), None)


def _compose(text: str, loader: Any) -> list[yaml.Node | None]:  # Any: the class that is installed
    return [yaml.compose(text, Loader=loader)]


def _compose_all(text: str, loader: Any) -> Iterable[yaml.Node | None]:
    return yaml.compose_all(text, Loader=loader)


def _composed(composing: Callable[[str, Any], Iterable[yaml.Node | None]], text: str) -> list[yaml.Node]:
    try:
        nodes = list(composing(text, _ComposingLoader))
    except (yaml.YAMLError, UnicodeError):
        # PyYAML's own parser says more of what is wrong, and takes surrogates, which `_check` then names.
        nodes = list(composing(text, yaml.SafeLoader))
    return [node for node in nodes if node is not None]


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _ComposingLoader = yaml.SafeLoader
else:

    class _ComposingLoader(Composer, yaml.CSafeLoader):
        """libyaml's parser below Python's composer: PyYAML's own in C overflows the stack where nodes nest deeply."""

        def __init__(self, stream: str) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)


class _SeenNodes:
    """The nodes that `_check` has seen: of each, by id, how many nodes and levels it stands for with aliases expanded.

    An alias is the very node that its anchor names, so a node that is seen twice is one that an alias repeats.
    """

    def __init__(self) -> None:
        self.extent: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()


def _check(value: YamlValue, checked: _SeenNodes) -> tuple[int, int]:
    """Refuse what no reader of the value wants; returns its nodes and levels with aliases expanded."""
    node = value.node
    if id(node) in checked.open:
        raise value.error(f"{value.name} holds itself", "write out what the alias stands for")
    if id(node) in checked.extent:
        return checked.extent[id(node)]
    checked.open.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys = _checked_keys(value)
        below = [
            _check(value._part(value._below(key), entry), checked)
            for key, (_, entry) in zip(keys, node.value, strict=True)
        ]
    elif isinstance(node, yaml.SequenceNode):
        below = [_check(value._part(f"{value.name}[{i}]", item), checked) for i, item in enumerate(node.value)]
    else:
        _refuse_surrogates(value, node)
        below = []
    checked.open.remove(id(node))
    size, depth = 1 + sum(size for size, _ in below), 1 + max((depth for _, depth in below), default=0)
    checked.extent[id(node)] = size, depth
    if depth > _MAX_DEPTH:
        raise value.error(f"{value.name} is nested too deeply", f"nest {_MAX_DEPTH} levels at most")
    if size - len(checked.extent) > _MAX_ALIASED:
        raise value.error(f"the aliases in {value.name} stand for too much", "write out what they stand for")
    return size, depth


def _checked_keys(value: YamlValue) -> list[str]:
    keys: list[str] = []
    seen: set[str] = set()
    for key_node, _ in value.node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise value._replace(node=key_node).error(f"a key of {value.name} is not text", "write a name")
        _refuse_surrogates(value, key_node)
        if key_node.value in seen:
            message = f"{value.name}: {key_node.value!r} appears twice"
            raise value._replace(node=key_node).error(message, "keep one of them")
        seen.add(key_node.value)
        keys.append(key_node.value)
    return keys


def _refuse_surrogates(value: YamlValue, node: yaml.Node) -> None:
    if not node.value.isascii() and _SURROGATES.search(node.value):
        raise value._replace(node=node).error(f"{node.value!r} has half a character", "write it whole")
