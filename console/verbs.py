"""Groups of verbs: listed in the order of their use, and loaded when they are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from importlib import import_module
from typing import Final

import click

_WHOLE: Final = 500
"""Characters that no first sentence has."""


class Verbs(click.Group):
    """A group that lists its verbs in the order in which they were added, each with the whole of its first sentence."""

    def list_commands(self, context: click.Context) -> list[str]:
        """The verbs, the most used first."""
        return list(self.commands)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list; click's own cuts sentences at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.first_sentence(name)) for name in self.commands])

    def first_sentence(self, name: str) -> str:
        """The first sentence of a verb's help."""
        return self.commands[name].get_short_help_str(_WHOLE)


class LazyVerbs(MutableMapping[str, click.Command]):
    """The verbs of a package, each a module with a function of its name: imported when it is asked for.

    A call of one verb so does not wait for what the others need.

    Args:
        package: The package's `__name__`.
        names: The verbs as a person types them, the most used first.
    """

    def __init__(self, package: str, names: Iterable[str]) -> None:
        self._package = package
        self._verbs: dict[str, click.Command | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> click.Command:
        verb = self._verbs[name]
        if verb is None:
            attribute = name.replace("-", "_")
            verb = self._verbs[name] = getattr(import_module(f".{attribute}", self._package), attribute)
        return verb

    def __setitem__(self, name: str, verb: click.Command) -> None:
        self._verbs[name] = verb

    def __delitem__(self, name: str) -> None:
        del self._verbs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs)

    def __len__(self) -> int:
        return len(self._verbs)
