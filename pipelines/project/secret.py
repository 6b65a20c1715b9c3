"""Secrets by reference: a pipeline, its store and its cache keys hold the name, a component the value."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError

FOLDER = "DRIVETRAIN_SECRETS"
"""The environment variable that names a folder of secrets, one file each; `/run/secrets` where unset."""
_REVEALED: set[str] = set()
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Secret:
    """A value that is known by name until a component asks for it: from the environment, or a file of that name."""

    name: str

    def reveal(self) -> str:
        """The value. From now on, this process redacts it from logs and recorded failures.

        Raises:
            InputError: It is neither in the environment nor a file.
        """
        value = os.environ.get(self.name)
        if value is None:
            path = Path(os.environ.get(FOLDER, "/run/secrets")) / self.name
            try:
                value = path.read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, ValueError):
                raise InputError(
                    f"the secret {self.name} is not set",
                    fix=f"set the environment variable {self.name}, or write a file {path}",
                ) from None
        mark_secret(value)
        return value

    def __str__(self) -> str:
        return f"secret {self.name}"


def secret(name: str) -> Secret:
    """A secret by name, for a parameter annotated `dt.Secret` or for `options(env=...)`.

    Raises:
        InputError: It is not a valid name.
    """
    if not name or not all(part.isalnum() for part in name.replace("-", "_").split("_") if part):
        raise InputError(f"{name!r} is not a valid name of a secret", fix="use letters, digits, _ and -")
    return Secret(name)


def mark_secret(value: str) -> None:
    """From now on, `redact` removes this value in this process."""
    if value:
        with _LOCK:
            _REVEALED.add(value)


def marked_secrets() -> list[str]:
    """The values that this process redacts, the longest first, so that one that holds another goes as a whole."""
    with _LOCK:
        return sorted(_REVEALED, key=len, reverse=True)


def redact(text: str) -> str:
    """A text with `***` in place of each secret that this process has revealed."""
    for value in marked_secrets():
        text = text.replace(value, "***")
    return text
