"""Examples on disk: Parquet parts by split, and the manifest that says what they are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..digest import canonical_json, digest_file, write_durably
from ..errors import InputError, suggest
from .sources import Source, open_parquet

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
ROW_GROUP_ROWS: Final = 65_536


@dataclass(frozen=True)
class Part:
    """One Parquet file: path relative to the content folder, rows, bytes, SHA-256."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a content folder of examples holds.

    Attributes:
        splits: Names in order, each with its parts in shard order.
        schema: Name and Arrow type of each column; normalised.
        span: The span of data the rows belong to.
        graph: The digest of the graph that transformed the rows; None where none did, or where that is not recorded.
    """

    splits: tuple[tuple[str, tuple[Part, ...]], ...]
    schema: tuple[tuple[str, str], ...]
    span: int = 0
    graph: str | None = None

    @property
    def rows(self) -> dict[str, int]:
        """Rows by split, in order."""
        return {name: sum(part.rows for part in parts) for name, parts in self.splits}

    def parts(self, split: str) -> tuple[Part, ...]:
        """The parts of a split, in shard order.

        Raises:
            InputError: There is no such split.
        """
        for name, parts in self.splits:
            if name == split:
                return parts
        fix = suggest(split, [name for name, _ in self.splits], "they have")
        raise InputError(f"the examples have no split {split!r}", fix=fix)

    def write(self, content: Path, *, span: int | None = None) -> Manifest:
        """Store it as `content/manifest.json`; returns what was stored, with `span` if given."""
        stored = self if span is None else replace(self, span=span)
        body = {
            "format": FORMAT,
            **({} if stored.graph is None else {"graph": stored.graph}),
            "kind": "drivetrain.examples",
            "schema": stored.schema,
            "span": stored.span,
            "splits": [
                [name, [{"bytes": p.bytes, "path": p.path, "rows": p.rows, "sha256": p.sha256} for p in parts]]
                for name, parts in stored.splits
            ],
        }
        write_durably(content / MANIFEST, canonical_json(body) + b"\n")
        return stored

    @classmethod
    def read(cls, content: Path) -> Manifest:
        """The manifest of a content folder.

        Raises:
            InputError: There is none, it is damaged, or of a format this release does not read.
        """
        path = content / MANIFEST
        try:
            body: Any = json.loads(path.read_bytes())  # Any: JSON, checked below
        except FileNotFoundError:
            raise InputError(f"{content} holds no examples: no {MANIFEST}", fix="run ExampleGen again") from None
        except ValueError as error:
            raise InputError(f"{path} is damaged: {error}", fix="run ExampleGen again") from error
        if not isinstance(body, dict) or body.get("kind") != "drivetrain.examples":
            raise InputError(
                f"{path} is not a manifest of examples", fix="point at the content/ of an Examples artifact"
            )
        if body.get("format") != FORMAT:
            raise InputError(
                f"{path} has format {body.get('format')!r}; this release reads {FORMAT}",
                fix="use the release of drivetrain that wrote it, or run ExampleGen again",
            )
        splits = tuple((name, tuple(Part(**part) for part in parts)) for name, parts in body["splits"])
        return cls(splits, tuple((name, kind) for name, kind in body["schema"]), body["span"], body.get("graph"))

    @classmethod
    def joined(cls, manifests: Iterable[Manifest]) -> Manifest:
        """One manifest over the splits of several, in order: what a pass per split writes.

        Raises:
            InputError: Their columns differ, or two have a split of one name.
        """
        every = list(manifests)
        splits = tuple(split for manifest in every for split in manifest.splits)
        if len({name for name, _ in splits}) != len(splits):
            raise InputError("two manifests have a split of the same name", fix="write each split once")
        schemas = {manifest.schema for manifest in every if any(manifest.rows.values())} or {every[0].schema}
        if len(schemas) > 1:
            raise InputError("the splits have different columns", fix="write every split with the same function")
        return cls(splits, schemas.pop(), every[0].span)


def refuse_transformed(content: Path, graph: str | None) -> None:
    """Refuse examples that a model's own preprocessing made: applied a second time, it would make others in silence.

    Args:
        content: The folder of the examples.
        graph: The digest of the model's preprocessing; None where it is not known.

    Raises:
        InputError: They are what it made.
    """
    if graph is not None and Manifest.read(content).graph == graph:
        raise InputError(
            "these examples are transformed already, by what the model itself applies to them",
            fix="give the raw ones, which ExampleGen makes, not transform.examples",
            where="",
        )


def examples_digest(content: Path) -> str:
    """The SHA-256 of an Examples content folder's manifest, which lists the digests of all parts."""
    return digest_file(content / MANIFEST)


def splits(content: Path) -> dict[str, int]:
    """Rows of each split of an Examples content folder, in order."""
    return Manifest.read(content).rows


def open_examples(content: str | Path, split: str, columns: Iterable[str] | None = None) -> Source:
    """A source over one split; each row group is a shard.

    Args:
        content: The content folder of an Examples artifact.
        split: Its name.
        columns: The columns wanted, default all.

    Raises:
        InputError: No such split or column, a format this release does not read, or a part that is missing or not
            of the size it was written with.
    """
    content = Path(content)
    parts = Manifest.read(content).parts(split)
    for part in parts:
        path = content / part.path
        size = path.stat().st_size if path.is_file() else -1
        if size != part.bytes:
            problem = "missing" if size < 0 else f"{size} bytes, not {part.bytes}"
            raise InputError(f"{path} is {problem}", fix="run `drivetrain fsck --repair`, or ExampleGen again")
    source = open_parquet([content / part.path for part in parts])
    return source if columns is None else source.select(columns)


@dataclass(frozen=True)
class Sink:
    """Where the rows of one split go: a folder of numbered Parquet parts (zstd, row groups of 65,536 rows).

    Attributes:
        folder: The folder.
        plain: Columns whose values hardly repeat, written as they are: to look for repetitions costs more than to write
            them.
    """

    folder: Path
    plain: frozenset[str] = frozenset()


def sinks(content: Path, names: Iterable[str], plain: Iterable[str] = ()) -> dict[str, Sink]:
    """A sink `content/split=<name>` for each split name, in order, with the same `plain` columns."""
    return {name: Sink(content / f"split={name}", frozenset(plain)) for name in names}
