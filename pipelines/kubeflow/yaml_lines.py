"""A YAML file read strictly: every value with its line, so that what is wrong in it is told at its place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from ...errors import InputError, suggest

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A value of the file, and where it stands.

    Attributes:
        file: The file.
        name: What it is called, with the names above it, e.g. "defaults.pvcs".
        node: As YAML has it.
    """

    file: Path
    name: str
    node: yaml.Node

    @property
    def where(self) -> str:
        """Its "file:line"."""
        return f"{self.file}:{self.node.start_mark.line + 1}"

    def wrong(self, message: str, fix: str) -> InputError:
        """An error about it."""
        return InputError(message, fix=fix, where=self.where)

    def items(self) -> Iterator[tuple[str, Place]]:
        """The entries of a map, in their order.

        Raises:
            InputError: It is none, or a key is no text or comes twice.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong(f"{self.name or 'it'} is no map", "write `key: value` lines below it")
        seen: set[str] = set()
        for key, value in self.node.value:
            at = Place(self.file, f"{self.name}.{key.value}" if self.name else str(key.value), key)
            if not isinstance(key, yaml.ScalarNode):
                raise at.wrong(f"a key of {self.name} is no text", "write a name")
            if key.value in seen:
                raise at.wrong(f"{at.name} comes twice", "keep one of them")
            seen.add(key.value)
            yield key.value, Place(self.file, at.name, value)

    def fields(self, known: Sequence[str], required: Sequence[str] = ()) -> dict[str, Place]:
        """The entries of a map whose keys are known.

        Raises:
            InputError: A key is unknown, or a required one is missing.
        """
        found = {}
        for key, value in self.items():
            if key not in known:
                raise value.wrong(f"kubeflow.yaml knows no {value.name}", suggest(key, list(known), "known here are"))
            found[key] = value
        for key in required:
            if key not in found:
                raise self.wrong(f"{f'{self.name} has' if self.name else 'there is'} no {key}:", f"add {key}: to it")
        return found

    def list(self) -> list[Place]:
        """The items of a list.

        Raises:
            InputError: It is none.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong(f"{self.name} is no list", "write `- item` lines, or [item, ...]")
        return [Place(self.file, f"{self.name}[{i}]", item) for i, item in enumerate(self.node.value)]

    def each(self, read: Callable[[Place], T]) -> tuple[T, ...]:
        """The items of a list, each read."""
        return tuple(read(item) for item in self.list())

    def text(self, *, empty: bool = False) -> str:
        """A text; of no characters only where that is said to be one.

        Raises:
            InputError: It is none; numbers and truth values want quotes.
        """
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != "tag:yaml.org,2002:str":
            shown = self.node.value if isinstance(self.node, yaml.ScalarNode) else "more than one value"
            raise self.wrong(f"{self.name} is no text: {shown}", f'put it into quotes: "{shown}"')
        if not self.node.value and not empty:
            raise self.wrong(f"{self.name} is empty", "write a value, or leave it out")
        return str(self.node.value)

    def whole(self) -> int:
        """A whole number, 0 or more."""
        named = isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:int"
        found = int(yaml.safe_load(self.node.value)) if named else -1
        if found < 0:
            raise self.wrong(f"{self.name} is no whole number of 0 or more", "write e.g. 1000")
        return found

    def number(self) -> float:
        """A number above 0."""
        named = isinstance(self.node, yaml.ScalarNode) and self.node.tag.rpartition(":")[2] in ("int", "float")
        found = float(yaml.safe_load(self.node.value)) if named else math.nan
        if not 0 < found < math.inf:
            raise self.wrong(f"{self.name} is no number above 0", "write e.g. 2.5")
        return found

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != "tag:yaml.org,2002:bool":
            raise self.wrong(f"{self.name} is neither true nor false", "write true or false")
        return bool(yaml.safe_load(self.node.value))

    def seconds(self) -> int:
        """A time: 90s, 30m, 12h, 7d."""
        found = re.fullmatch(r"([0-9]{1,7})([smhd])", str(self.node.value))
        if found is None or not int(found[1]):
            raise self.wrong(f"{self.name} is no time", "write 90s, 30m, 12h or 7d")
        return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]

    def size(self) -> str:
        """A size as Kubernetes writes it: 8Gi, 500M; ours (8GB, 8GiB) are taken too."""
        text = str(self.node.value) if isinstance(self.node, yaml.ScalarNode) else "more than one value"
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]i|[kMGTPE])?B?", text)
        if found is None or not float(found[1]):
            raise self.wrong(f"{self.name} is no size: {text}", "write e.g. 8Gi or 500M")
        return found[1] + (found[2] or "")

    def one_of(self, *options: str) -> str:
        """One of these texts."""
        found = self.text()
        if found not in options:
            raise self.wrong(f"{self.name} is {found!r}", f"write {', '.join(options[:-1])} or {options[-1]}")
        return found


def read_yaml(file: Path) -> Place:
    """A file's only document.

    Raises:
        InputError: It is not there, not to be read, or no YAML.
    """
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="see docs/kubeflow.md for what stands in it") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise InputError(
            f"it is no YAML: {getattr(error, 'problem', None) or error}", fix="mend it there", where=f"{file}:{line}"
        ) from None
    if node is None:
        raise InputError(f"{file} is empty", fix="see docs/kubeflow.md for what stands in it")
    return Place(file, "", node)
