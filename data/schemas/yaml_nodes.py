"""YAML nodes, which know their lines: read without any value being made into what nobody wrote."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml
from yaml.composer import Composer

from ...errors import InputError

_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_DIGITS: Final = 1000  # of a number, at most
_INFINITE: Final = {sign + ".inf": float(sign + "inf") for sign in ("", "+", "-")}
_CONSTANTS: Final = {"true": True, "false": False, "null": None, "~": None, "": None}
_HALVES: Final = re.compile(r"[\ud800-\udfff]")  # surrogates


def compose(text: str) -> yaml.Node | None:
    """The text's node, None where it is empty; by libyaml where PyYAML was built with it, several times as fast.

    Raises:
        yaml.YAMLError: It is no YAML.
        RecursionError: It is nested too deeply.
    """
    try:
        return yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, UnicodeError):
        return yaml.compose(text, Loader=yaml.SafeLoader)  # it says more of what is wrong, and takes half characters


if TYPE_CHECKING or not yaml.__with_libyaml__:
    _Loader = yaml.SafeLoader
else:

    class _Loader(Composer, yaml.CSafeLoader):
        """libyaml's parser below Python's composer: PyYAML's own in C overflows the stack where nodes nest deeply."""

        def __init__(self, stream: str) -> None:
            yaml.CSafeLoader.__init__(self, stream)
            Composer.__init__(self)


class YamlNodes:
    """Reads nodes of one file; what is not as wanted is an error that names the file and line."""

    def __init__(self, where: str) -> None:
        self.where = where

    def at(self, node: yaml.Node) -> str:
        """The node's file and line."""
        return f"{self.where}:{node.start_mark.line + 1}"

    def error(self, node: yaml.Node, message: str, fix: str) -> InputError:
        """An error at the node, to be raised."""
        return InputError(message, fix=fix, where=self.at(node))

    def mapping(self, node: yaml.Node, what: str, allowed: tuple[str, ...] | None) -> dict[str, yaml.Node]:
        """A mapping's values by key; no key twice, and none that is not allowed (None: any is)."""
        if not isinstance(node, yaml.MappingNode):
            raise InputError(f"{what} must be `key: value` lines", fix="correct it", where=self.at(node))
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = self.text(key)
            if allowed is not None and name not in allowed:
                raise InputError(f"{what}: unknown key {name!r}", fix=f"use {', '.join(allowed)}", where=self.at(key))
            if name in found:
                raise InputError(f"{what}: {name!r} stands twice", fix="remove one of the two", where=self.at(key))
            found[name] = value
        return found

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """A list's items."""
        if not isinstance(node, yaml.SequenceNode):
            raise InputError(f"{what} must be a list", fix="write [a, b]", where=self.at(node))
        return list(node.value)

    def texts(self, node: yaml.Node | None, what: str) -> tuple[str, ...]:
        """A list of texts; none where there is no node."""
        return () if node is None else tuple(self.text(item) for item in self.items(node, what))

    def text(self, node: yaml.Node) -> str:
        """The scalar as it is spelled: `NO`, `1` and `9E` are texts here, whatever YAML would make of them."""
        if not isinstance(node, yaml.ScalarNode):
            raise InputError("one value is wanted here, not a list or a mapping", fix="correct it", where=self.at(node))
        if _HALVES.search(node.value):
            raise InputError(f"{node.value!r} has half a character", fix="write it whole", where=self.at(node))
        return str(node.value)

    def scalar(self, node: yaml.Node) -> Any:  # the callers check
        """One plain value; None for a list or a mapping."""
        return plain_scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def number(self, node: yaml.Node) -> float:
        """A number."""
        value = self.scalar(node)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError("a number is wanted here", fix="e.g. 0.95", where=self.at(node))
        return value

    def whole(self, node: yaml.Node) -> int:
        """A whole number."""
        value = self.number(node)
        if not isinstance(value, int):
            raise InputError("a whole number is wanted here", fix="e.g. 100", where=self.at(node))
        return value

    def truth(self, node: yaml.Node) -> bool:
        """True or false."""
        value = self.scalar(node)
        if not isinstance(value, bool):
            raise InputError("true or false is wanted here", fix="e.g. true", where=self.at(node))
        return value


def plain_scalar(node: yaml.Node) -> Any:
    """A scalar node's value by the rules of YAML 1.2; text where it is in quotes, or nothing else."""
    text = str(node.value)
    if getattr(node, "style", None):  # in quotes; "" is libyaml's for plain
        return text
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _NUMBER.fullmatch(text) and len(text) <= _DIGITS:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return _INFINITE.get(text.lower(), text)
