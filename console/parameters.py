"""The parameters of a run as the shell gives them: `--param`, a file, the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from ..errors import InputError

PREFIX = "DRIVETRAIN_PARAM_"


def gathered(
    names: Iterable[str], given: Iterable[str], file: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, object]:
    """The values of a pipeline's parameters: the shell's over the file's over the environment's.

    Args:
        names: Of the pipeline's parameters.
        given: NAME=VALUE, each.
        file: JSON, YAML or TOML by its suffix: an object of parameters.
        environ: Where `DRIVETRAIN_PARAM_NAME` is looked up, the name in capitals.

    Raises:
        InputError: The file cannot be read, or holds no object.
    """
    found: dict[str, object] = {
        name: environ[PREFIX + name.upper()] for name in names if PREFIX + name.upper() in environ
    }
    if file is not None:
        found |= _read(file)
    return found | dict(parameter(text) for text in given)


def parameter(text: str) -> tuple[str, str]:
    """A parameter given as NAME=VALUE."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--param takes NAME=VALUE, not {text!r}")
    return name, value


def _read(file: Path) -> dict[str, object]:
    import tomllib

    import yaml

    readers: dict[str, Any] = {".json": json.loads, ".toml": tomllib.loads}  # Any: three libraries' functions
    try:
        body = readers.get(file.suffix, yaml.safe_load)(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="give JSON, YAML or TOML") from None
    if not isinstance(body, dict) or not all(isinstance(name, str) for name in body):
        raise InputError(f"{file} holds no parameters", fix="write e.g. `epochs: 5`, a line each")
    return body
