"""What a linter finds: where, what, and what to do; and the rule that all names of Kubernetes keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_NAME = 57
"""Of a pipeline's name: its workflow's gets a hyphen and five letters, and is a label of every pod, of 63 at most."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Finding:
    """Something wrong.

    Attributes:
        location: e.g. "work/trainer": the names of the tasks down to it; or "platform", "executors/exec-x".
        message: What and why.
        fix: What to do.
    """

    location: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}\n  fix: {self.fix}"

    def to_json(self) -> dict[str, str]:
        """As JSON."""
        return {"place": self.location, "message": self.message, "fix": self.fix}


def of_name(name: str, location: str, what: str, longest: int = 63) -> Iterator[Finding]:
    """Whether Kubernetes takes a name."""
    if not _NAME.fullmatch(name):
        yield Finding(
            location,
            f"{what} {name!r} is no name for Kubernetes",
            "use small letters, digits and hyphens, a letter or digit at both ends",
        )
    elif len(name) > longest:
        yield Finding(
            location, f"{what} {name!r} has {len(name)} characters, and Kubernetes takes {longest}", "shorten it"
        )
