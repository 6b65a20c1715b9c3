"""Groups of verbs, and how their help lists them."""

from __future__ import annotations

import click

_WHOLE = 500
"""Characters that no first sentence has."""


class Verbs(click.Group):
    """A group that lists its verbs in the order in which they were added, each with the whole of its first sentence."""

    def list_commands(self, context: click.Context) -> list[str]:
        """The verbs, the most used first."""
        return list(self.commands)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list; click's own cuts sentences at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(_WHOLE)) for name, verb in self.commands.items()])
