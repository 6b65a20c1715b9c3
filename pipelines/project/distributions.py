"""The version of the installed distribution that a module is of: as `importlib.metadata` has it, mostly without it.

The import of that module, of its parser of e-mails above all, is a tenth of the time of a cached run, and of what a
child process takes to begin. So it is asked only where a distribution lies in another form than the one that installers
have written for years: a folder `NAME-VERSION.dist-info` in a folder of `sys.path`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from importlib.machinery import PathFinder
from itertools import chain
from pathlib import Path

_NAMES = {
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "orbax": "orbax-checkpoint",
    "PIL": "pillow",
    "grpc": "grpcio",
}
_VERSION = r"(?m)^Version:[ \t]*(\S+)[ \t]*$"


@lru_cache(1024)
def version_of(module: str) -> str | None:
    """The version of the distribution that is called like a top-level module, else of the first that holds it.

    Returns:
        None where none does, as of a module of the project.
    """
    for read, _ in _distributions(_NAMES.get(module, module)):
        return _version(read)
    # As `packages_distributions` does, which reads all of every distribution's lists: half of a cached run's time.
    named = re.compile(rf"^{re.escape(module)}(?:/|\.py,|\.[^/,]*\.so,)", re.MULTILINE)
    for read, _ in _distributions():
        if module in read("top_level.txt").split() or named.search(read("RECORD")):
            return _version(read)
    return None


def file_of(distribution: str, file: str) -> Path | None:
    """Where a file of an installed distribution is to lie; None where that distribution is not installed."""
    return next((Path(str(locate(file))) for _, locate in _distributions(distribution)), None)


def _distributions(name: str | None = None) -> Iterator[tuple[Callable[[str], str], Callable[[str], object]]]:
    """The distributions of a name, or all: what gives the text of a file of its metadata, and where a file of it lies.

    The text is "" where there is no such file.
    """
    folders = _folders()
    if folders is None:
        from importlib import metadata

        for each in metadata.distributions(name=name):
            yield lambda file, read=each.read_text: read(file) or "", each.locate_file  # type: ignore[misc]
        return
    for infos in folders:
        for info in infos.get(_normalized(name), ()) if name else chain.from_iterable(infos.values()):
            yield partial(_text, info), info.parent.joinpath


def _version(read: Callable[[str], str]) -> str | None:
    line = re.search(_VERSION, read("METADATA") or read("PKG-INFO"))  # the first: a description may follow
    return line[1] if line else None


def _folders() -> list[Mapping[str, list[Path]]] | None:
    """Of each folder of `sys.path` the distributions, by their normalized names; None where some have another form."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None
    folders = []
    for folder in sys.path:
        try:
            infos = _infos(folder, os.stat(folder or ".").st_mtime_ns)  # noqa: PTH116 - half the time of Path's
        except FileNotFoundError:
            continue
        except OSError:  # an archive
            return None
        if infos is None:
            return None
        folders.append(infos)
    return folders


@lru_cache(64)
def _infos(folder: str, changed: int) -> Mapping[str, list[Path]] | None:
    """The distributions in a folder as it was when it was last changed, in the order of `importlib.metadata`."""
    infos: dict[str, list[Path]] = {}
    for entry in os.listdir(folder or "."):  # noqa: PTH208 - names are all it takes
        if entry.lower().endswith((".egg-info", ".egg")):
            return None
        if entry.lower().endswith(".dist-info"):
            name = entry.rpartition(".")[0].partition("-")[0]
            infos.setdefault(_normalized(name), []).append(Path(folder, entry))
    return infos


def _text(info: Path, file: str) -> str:
    try:
        return (info / file).read_text("utf-8")
    except OSError:
        return ""


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
