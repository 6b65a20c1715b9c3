"""Secrets by reference: `env:NAME` or `file:PATH`. Files of settings and the store hold the reference alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import InputError
from ...redaction import mark_secret, weakness

_LONG: Final = 12
"""Characters of a name in a path that is taken for a secret of its own."""
_KINDS: Final = ("env:", "file:")
_LONGEST: Final = 64 << 10
"""Bytes of a file that holds a secret."""


@dataclass(frozen=True)
class SecretReference:
    """A value that is known by where it stands.

    Attributes:
        text: `env:NAME`, an environment variable, or `file:PATH`.
        base: The folder that a relative path is below.
    """

    text: str
    base: Path

    def reveal(self) -> str:
        """The value, read anew each time, so that a file may be renewed; this process redacts it from now on.

        Raises:
            InputError: There is none, or one that cannot be redacted.
        """
        kind, _, name = self.text.partition(":")
        if kind == "env":
            value = os.environ.get(name)
            if value is None:
                raise InputError(f"{self.text} is not set", fix=f"set the environment variable {name}")
        else:
            value = self._read(self.base / Path(name).expanduser())
        value = value.strip()
        if (reason := weakness(value)) is not None:
            raise InputError(f"the value of {self.text} {reason}, so it cannot be redacted", fix="use a longer one")
        mark_secret(value)
        # What of it others may show alone: the token after "Bearer", a URL's path, or the last of its names.
        path = value.partition("://")[2].partition("/")[2]
        name = path.partition("?")[0].rpartition("/")[2]
        for part in (value.split()[-1], path, name if len(name) >= _LONG else ""):
            if weakness(part) is None:
                mark_secret(part)
        return value

    def _read(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                return file.read(_LONGEST).decode()
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InputError(f"{self.text} cannot be read: {cause}", fix=f"write the secret to {path}") from None


def is_reference(text: str) -> bool:
    """Whether a text refers to a secret."""
    return text.startswith(_KINDS)
