"""Secrets by reference: a pipeline, its store and its cache keys hold the name, a component the value."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...redaction import mark_secret, weakness

FOLDER = "DRIVETRAIN_SECRETS"
"""The environment variable that names a folder of secrets, one file each; `/run/secrets` where unset."""


@dataclass(frozen=True)
class Secret:
    """A value that is known by name until a component asks for it: from the environment, or a file of that name."""

    name: str

    @property
    def is_set(self) -> bool:
        """Whether there is a value."""
        return self._value is not None

    @property
    def how_to_set(self) -> str:
        """What a person does to set it."""
        return f"set the environment variable {self.name}, or write a file {self._path}"

    def reveal(self) -> str:
        """The value. From now on, this process redacts it from logs and recorded failures.

        Raises:
            InputError: It is neither in the environment nor a file; or it is too short or too common to be redacted.
        """
        value = self._value
        if value is None:
            raise InputError(f"the secret {self.name} is not set", fix=self.how_to_set)
        _check(self.name, value)
        mark_secret(value)
        return value

    @property
    def _path(self) -> Path:
        return Path(os.environ.get(FOLDER, "/run/secrets")) / self.name

    @property
    def _value(self) -> str | None:
        value = os.environ.get(self.name)
        if value is None:
            with suppress(OSError, ValueError):
                value = self._path.read_text(encoding="utf-8").removesuffix("\n")
        return value

    def __str__(self) -> str:
        return f"secret {self.name}"


def secret(name: str) -> Secret:
    """A secret by name, for a parameter annotated `dt.Secret` or for `options(env=...)`.

    Raises:
        InputError: It is not a valid name; or the environment has its value, which cannot be redacted.
    """
    if not name or not all(part.isalnum() for part in name.replace("-", "_").split("_") if part):
        raise InputError(f"{name!r} is not a valid name of a secret", fix="use letters, digits, _ and -")
    if (value := os.environ.get(name)) is not None:
        _check(name, value)
    return Secret(name)


def _check(name: str, value: str) -> None:
    if (reason := weakness(value)) is not None:
        raise InputError(
            f"the secret {name} {reason}, so it cannot be redacted from logs",
            fix="use a longer one; what is not a secret is a parameter",
        )
