"""Row-level skew: rows of two data sets that have the same key, compared feature by feature.

As TFDV's DetectFeatureSkew does; here with examples of what differs, and by a join on disk in bounded memory.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...digest import write_durably
from ...errors import InputError, suggest
from ...progress import Progress, no_progress, part_of
from ...redaction import printable
from ..base import Executor
from ..exchange import MOST_BUCKETS
from ..reading.source_of import source_of
from ..sources import Source
from .accumulator import DiffAccumulator, DiffSettings
from .equality import compared_as
from .join import KeyedColumns, join, key_schema

FORMAT: Final = "drivetrain.example_diff/1"
FILE: Final = "example_diff.json"
SCRATCH: Final = "drivetrain-diff-"  # what folders in the scratch folder begin with
_BUCKET_CELLS: Final = 4_000_000  # values of one side that are in memory at once, per thread
Pairs = Sequence[tuple[str, str]]


class ExamplesDiff:
    """How rows of the same key differ, per pair of data sets and feature.

    Attributes:
        document: `{"format", "key", "float_digits", "allow_duplicates", "pairs": [{"base", "test", "counts",
            "key_samples", "features": [{"name", "status", "base_type", "test_type", "matches", "mismatches",
            "base_only", "test_only", "both_missing", "difference", "confusion", "samples"}]}]}`.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)

    def __getitem__(self, name: str) -> dict[str, Any]:
        """The comparison of the feature of that name, in the first pair of data sets.

        Raises:
            InputError: There is no such feature.
        """
        features: dict[str, dict[str, Any]] = {item["name"]: item for item in self.document["pairs"][0]["features"]}
        if name not in features:
            raise InputError(f"there is no feature {name!r} in the diff", fix=suggest(str(name), list(features)))
        return features[name]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows, keys and pairs there are in the first pair of data sets (see `diff_examples`)."""
        return dict(self.document["pairs"][0]["counts"])

    def __repr__(self) -> str:
        return printable(f"ExamplesDiff({self.summary})")

    @property
    def different(self) -> tuple[str, ...]:
        """Features that differ in at least one pair of rows, in any pair of data sets."""
        odd = (
            feature["name"]
            for pair in self.document["pairs"]
            for feature in pair["features"]
            if feature["mismatches"] + feature["base_only"] + feature["test_only"]
        )
        return tuple(dict.fromkeys(odd))

    @property
    def summary(self) -> str:
        """One line: how many pairs of rows differ, and in which features."""
        counts = [pair["counts"] for pair in self.document["pairs"]]
        pairs, odd = (sum(count[name] for count in counts) for name in ("pairs", "different_pairs"))
        if not pairs:
            return "no row has a partner of the same key"
        status = {feature["name"]: feature["status"] for pair in self.document["pairs"] for feature in pair["features"]}
        both = [name for name in self.different if not status[name].startswith("only")]
        lines = [f"{odd:,} of {pairs:,} pairs of rows differ"]
        if odd:
            lines[0] += f", in {_some(both)}"
        for side in ("only in base", "only in test"):
            names = [name for name in status if status[name] == side]
            lines += [f"{side}: {_some(names)}"] if names else []
        return "; ".join(lines)

    def to_json(self) -> str:
        """The document as indented JSON; equal diffs give equal text."""
        return json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One line per pair of data sets and feature: its counts, and the mean, min and max of the differences."""
        import pandas as pd

        lines = [
            {"base": pair["base"], "test": pair["test"]}
            | {name: feature[name] for name in _COLUMNS}
            | {f"difference_{name}": (feature["difference"] or {}).get(name) for name in _ENDS}
            for pair in self.document["pairs"]
            for feature in pair["features"]
        ]
        ends = [f"difference_{name}" for name in _ENDS]
        return pd.DataFrame(lines, columns=["base", "test", *_COLUMNS, *ends])

    def save(self, folder: Path | str) -> None:
        """Write `to_json` to a folder, which is made where there is none."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_durably(Path(folder) / FILE, self.to_json().encode())

    @classmethod
    def load(cls, folder: Path | str) -> ExamplesDiff:
        """What `save` wrote.

        Raises:
            InputError: There is none, or of a format this release does not read.
        """
        path = Path(folder) / FILE
        try:
            document = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="compare again") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InputError(f"{path} is not of the format {FORMAT}", fix="compare again")
        return cls(document)

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.example_diff import example_diff_page

        return example_diff_page(self.document)

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


_ENDS: Final = ("mean", "min", "max")
_COLUMNS: Final = ("name", "status", "matches", "mismatches", "base_only", "test_only", "both_missing")


def diff_examples(
    base: object,
    test: object,
    key: str | Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    float_digits: int | None = None,
    allow_duplicates: bool = False,
    samples: int = 5,
    confusion: int = 50,
    pairs: Pairs | None = None,
    executor: Executor | None = None,
    scratch: Path | None = None,
    progress: Progress = no_progress,
) -> ExamplesDiff:
    """Compare the rows of two data sets that have the same key, e.g. what was trained on and what was served.

    Rows that lack a part of the key are counted and left out. A key that several rows of a side have names no pair: it
    is counted and left out too, unless `allow_duplicates`. Values are equal as `equal.outcomes` says.

    Args:
        base: What `source_of` takes: a Source, path, DataFrame, Arrow table, …; or a mapping of such by data set name.
        test: What is compared with it; likewise.
        key: The column, or columns, that identify a row.
        columns: Features to compare; all of either side where None.
        ignore: Features not to compare.
        float_digits: Decimals that floats (of keys too) are rounded to before they are compared; None: not at all.
        allow_duplicates: Compare every row of a key on one side with every one on the other.
        samples: Differing pairs quoted of each feature, and keys of each kind: those with the smallest hashes.
        confusion: Distinct values of a feature (text, integers, booleans) up to which all pairs of values are counted.
        pairs: Names of the data sets to compare, (base, test); where None those of one name.
        executor: Who walks the rows; threads of this process where None.
        scratch: A folder on a disk with room for both sides' rows, which the executor's workers share; the temporary
            folder where None. What is written there is removed.
        progress: Called with the rows read so far; both sides are read twice.

    Returns:
        The diff. Its counts: base_rows, test_rows; base_without_key, test_without_key (rows); keys (distinct);
        only_in_base, only_in_test, duplicate_keys (keys); base_duplicate_rows, test_duplicate_rows; pairs,
        different_pairs (of rows; a column that only one side has makes none different). A feature's differences are of
        the pairs that mismatch, test − base, of times in seconds. The same on every executor.

    Raises:
        InputError: A key or column is not there, the sides' keys are of different types, or something cannot be read.
        DrivetrainError: There is no room in the scratch folder.
        Canceled: `progress` raised it.
    """
    if not isinstance(key, Iterable):
        raise InputError(f"key is {key!r}, not the name of a column", fix='write e.g. key=["day", "flight"]')
    keys = (key,) if isinstance(key, str) else tuple(dict.fromkeys(key))
    if not keys:
        raise InputError("rows cannot be paired without a key", fix="name the columns that identify a row")
    if min(samples, confusion) < 0:
        raise InputError(f"samples={samples}, confusion={confusion}: neither may be below 0", fix="give 0 for none")
    if executor is None:
        from ..local import LocalExecutor

        executor = LocalExecutor()
    sides = [_named(side) for side in (base, test)]
    chosen = _pair_up(*sides) if pairs is None else list(pairs)
    for side, names, side_sources in (
        ("base", {a for a, _ in chosen}, sides[0]),
        ("test", {b for _, b in chosen}, sides[1]),
    ):
        for name in sorted(names - side_sources.keys()):
            raise InputError(f"the {side} data has no data set {name!r}", fix=f"use {', '.join(side_sources)}")
    total = 2 * sum(sides[0][a].rows + sides[1][b].rows for a, b in chosen)
    compared = []
    done = 0
    for first, second in chosen:
        left, right = sides[0][first], sides[1][second]
        features = _features(left, right, keys, columns, ignore)
        settings = DiffSettings(keys, features, float_digits, samples, confusion)
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=scratch) as folder:
            state = _diff(
                left, right, settings, allow_duplicates, executor, Path(folder), part_of(progress, done, total)
            )
        result = state.result()
        result["features"] = [_typed(feature, left, right) for feature in result["features"]]
        compared.append({"base": first, "test": second, **result})
        done += 2 * (left.rows + right.rows)
    progress(total, total, "rows")
    return ExamplesDiff(
        {
            "format": FORMAT,
            "key": list(keys),
            "float_digits": float_digits,
            "allow_duplicates": allow_duplicates,
            "pairs": compared,
        }
    )


def _diff(
    base: Source,
    test: Source,
    settings: DiffSettings,
    duplicates: bool,
    executor: Executor,
    folder: Path,
    progress: Progress,
) -> DiffAccumulator:
    shared = key_schema(base, test, settings.keys)
    cells = max(base.rows, test.rows) * (len(settings.keys) + len(settings.features))
    buckets = min(max(1, math.ceil(cells / _BUCKET_CELLS)), MOST_BUCKETS)
    sides = []
    done = 0
    for name, source in (("base", base), ("test", test)):
        others = tuple(feature for feature in settings.features if feature in source.columns)
        wanted = KeyedColumns(shared, others, settings.digits, name)
        sides.append(
            executor.exchange(
                source.select([*settings.keys, *others]),
                settings.keys,
                buckets,
                folder / name,
                via=wanted,
                progress=part_of(progress, done, None),
            )
        )
        done += source.rows
    joined = join(sides[0], sides[1], shared, duplicates=duplicates)
    return executor.combine(joined, partial(DiffAccumulator, settings), progress=part_of(progress, done, None))


def _named(data: object) -> dict[str, Source]:
    if isinstance(data, Mapping):
        return {str(name): source_of(part) for name, part in data.items()}
    return {"data": source_of(data)}


def _pair_up(base: Mapping[str, Source], test: Mapping[str, Source]) -> list[tuple[str, str]]:
    if len(base) == len(test) == 1:
        return [(next(iter(base)), next(iter(test)))]
    same = [(name, name) for name in base if name in test]
    if not same:
        raise InputError(
            f"no data set is on both sides: {', '.join(base) or 'none'}; {', '.join(test) or 'none'}",
            fix="name the pairs to compare",
        )
    return same


def _features(
    base: Source, test: Source, keys: Sequence[str], columns: Sequence[str] | None, ignore: Sequence[str]
) -> tuple[str, ...]:
    known = dict.fromkeys((*base.columns, *test.columns))
    for name in (*(columns or ()), *ignore):
        if name not in known:
            raise InputError(f"neither side has a column {name!r}", fix=suggest(name, list(known), "the columns are:"))
    wanted = dict.fromkeys(known if columns is None else columns)
    return tuple(name for name in wanted if name not in keys and name not in ignore)


def _typed(feature: dict[str, Any], base: Source, test: Source) -> dict[str, Any]:
    """The feature with its types on both sides, and whether they can be equal at all."""
    kinds = [
        source.schema.field(feature["name"]).type if feature["name"] in source.columns else None
        for source in (base, test)
    ]
    status = "compared"
    if None in kinds:
        status = "only in test" if kinds[0] is None else "only in base"
    elif compared_as(*kinds) is None:
        status = "type changed"
    types = {f"{side}_type": None if kind is None else str(kind) for side, kind in zip(_SIDES, kinds, strict=True)}
    return {"name": feature["name"], "status": status, **types, **feature}


_SIDES: Final = ("base", "test")
