"""What the values of a column mean beyond their type: times in text or integers, natural language, images.

The rules are those of TFDV 1.16 (`time_stats_generator.py`, `natural_language_domain_inferring_stats_generator.py`,
`image_stats_generator.py`): at least 100 values, of which 0.8 match. Other than there: the most frequent format of a
tie is the first of `FORMATS`; formats of ISO 8601 with a zone are known; digits alone are a date only if they are
eight; all values are looked at (natural language: not the first hundred of each batch); an empty text is one that does
not match, in place of ending the search; and texts that come again are a category, not natural language.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..aggregates.tables import NumberTable, TextTable
from ..arrays import arrow_of
from ..schemas.schema import Count, Semantic, Time
from ..schemas.time_formats import (
    FORMATS,
    RECENT,
    UNIX,
    any_may_read,
    looks_like_time,
    marks_of,
    reads_as_time,
    within,
)
from ..stats.column import ColumnState
from ..stats.images import FORMATS as IMAGES
from ..validation.time_domain import time_table
from .relax import DOMAIN_LIMIT

LEAST_VALUES: Final = 100
LEAST_SHARE: Final = Fraction(4, 5)
FEW_TEXTS: Final = 100
CONFIDENCE: Final = 0.99
"""One-sided, of what is proposed about rows that were not seen."""

Mask = NDArray[np.bool_]


class Meaning(NamedTuple):
    """A meaning of a column's values beyond their type.

    Attributes:
        domain: As the schema says it.
        evidence: Why, for people.
    """

    domain: Time | Semantic
    evidence: str


def meaning(column: ColumnState, *, days: bool, max_values: int | None) -> Meaning | None:
    """What a column's values mean; None where they mean nothing more than their type.

    Of a column that only has sketches, the values kept are looked at.

    Args:
        column: Of text, bytes or integers.
        days: Whether integers from 7,305 to 21,914 are days since 1970: they are as often something else.
        max_values: As of `listed_share`: words that a list is made of, and that come again, are a category.
    """
    table = time_table(column)
    if table is None or table.total < LEAST_VALUES:
        return None
    of = f"{len(table.counts):,} values kept" if column.sketches is not None else "the values"
    if isinstance(table, NumberTable):
        return _unix_time(table, of, days=days) if column.kind == "int" else None
    if column.kind == "bytes" and (image := _image(table, of)) is not None:
        return image
    time = _text_time(table, of)
    if time is not None or (column.sketches is None and _is_category(table, max_values)):
        return time
    return _language(table, of)


def _share(matched: int, total: int) -> str:
    return f"{'all' if matched == total else f'{matched / total:.4g} of'}"


def _unix_time(table: NumberTable, of: str, *, days: bool) -> Meaning | None:
    for name in UNIX:
        matched = int(table.counts[within(table.values, name)].sum())
        if (name != "UNIX_DAYS" or days) and Fraction(matched, table.total) >= LEAST_SHARE:
            domain = Time(name, float(LEAST_SHARE))
            return Meaning(domain, f"{_share(matched, table.total)} {of} are in 1990 to 2029 as {name}")
    return None


def _text_time(table: TextTable, of: str) -> Meaning | None:
    if not _enough(table, looks_like_time):
        return None
    matched, missed = dict.fromkeys(FORMATS, 0), dict.fromkeys(FORMATS, 0)
    allowed = table.total - _least(table.total)
    for values, counts in _pieces(table):
        marks = set(map(marks_of, values.to_pylist()))
        for name in [name for name in FORMATS if missed[name] <= allowed]:
            if not any_may_read(marks, name):
                missed[name] += int(counts.sum())
                continue
            hits = reads_as_time(values, name)
            matched[name] += int(counts[hits].sum())
            missed[name] += int(counts[~hits].sum())
    enough = [name for name in FORMATS if missed[name] <= allowed]
    if not enough:
        return None
    best = max(enough, key=matched.__getitem__)
    also = [name for name in enough if matched[name] == matched[best] and name != best]
    mass = 1.0 if not missed[best] else matched[best] * 1000 // table.total / 1000
    evidence = f"{_share(matched[best], table.total)} {of} read as {best}"
    recent = "%Y" in best and int(table.counts[reads_as_time(table.values, best, RECENT)].sum()) == matched[best]
    return Meaning(
        Time(best, mass, Count(*RECENT) if recent else None),
        evidence + (f", as well as {' and '.join(also)}" if also else ""),
    )


def listed_share(table: TextTable, max_values: int | None) -> float:
    """The smallest share of rows that a list of the texts seen is proposed for; 0: no list.

    Of few texts the list is taken for complete. Of up to 400 it is the lower bound of the share of rows, seen or not,
    whose text is one of those seen: the share of rows whose text occurs once estimates the others (Good, 1953), with an
    error that McAllester and Schapire bound (2000). Below a half there is none: too much would be new.

    Args:
        table: The texts.
        max_values: How many are few: none beyond them are listed. None: 100, and those beyond them may be.
    """
    if len(table.counts) <= (FEW_TEXTS if max_values is None else max_values):
        return 1.0
    if max_values is not None or len(table.counts) > DOMAIN_LIMIT:
        return 0.0
    error = (2 * math.sqrt(2) + math.sqrt(3)) * math.sqrt(math.log(3 / (1 - CONFIDENCE)) / table.total)
    share = math.floor(100 * (1 - _alone(table) / table.total - error)) / 100
    return share if share >= 0.5 else 0.0


def _alone(table: TextTable) -> int:
    """Rows whose text no other row has."""
    return int((table.counts == 1).sum())


def _is_category(table: TextTable, max_values: int | None) -> bool:
    """Whether a list of the texts says more than their kind: there is one, and at most half of the rows are alone."""
    return bool(listed_share(table, max_values)) and 2 * _alone(table) <= table.total


def _language(table: TextTable, of: str) -> Meaning | None:
    matched = _enough(table, lambda values: np.fromiter(map(is_language, values.to_pylist()), np.bool_, len(values)))
    if not matched:
        return None
    return Meaning(Semantic("natural_language"), f"{_share(matched, table.total)} {of} are words like a language's")


def is_language(value: bytes) -> bool:
    """Whether the first 100 characters are at least three words of 2.5 to 8 characters on average."""
    words = value[:400].decode("utf-8", "replace")[:100].split()
    return len(words) >= 3 and 2.5 <= sum(map(len, words)) / len(words) <= 8


def _image(table: TextTable, of: str) -> Meaning | None:
    heads = pc.binary_slice(table.values, 0, max(map(len, IMAGES.values()))).to_pylist()
    kinds = [next((name for name, magic in IMAGES.items() if head.startswith(magic)), "") for head in heads]
    rows = {name: int(table.counts[[kind == name for kind in kinds]].sum()) for name in IMAGES}
    matched = sum(rows.values())
    if matched < _least(table.total):
        return None
    shown = ", ".join(f"{count:,} {name}" for name, count in rows.items() if count)
    return Meaning(Semantic("image"), f"{_share(matched, table.total)} {of} begin like images ({shown})")


def _enough(table: TextTable, test: Callable[[Any], Mask]) -> int:
    """Rows that pass a test, if they are enough of all; else 0, after as few values as it takes to know."""
    matched, missed, allowed = 0, 0, table.total - _least(table.total)
    for values, counts in _pieces(table):
        hits = test(values)
        matched += int(counts[hits].sum())
        missed += int(counts[~hits].sum())
        if missed > allowed:
            return 0
    return matched


def _pieces(table: TextTable) -> Iterator[tuple[Any, Any]]:
    """Values with their counts, the frequent ones first, in growing pieces: what does not fit is soon known."""
    order = np.argsort(-table.counts, kind="stable")
    start, size = 0, 64
    while start < len(order):
        chosen = order[start : start + size]
        yield table.values.take(arrow_of(chosen)), table.counts[chosen]
        start, size = start + size, size * 2


def _least(total: int) -> int:
    """Fewest of so many rows that are enough."""
    return -(-LEAST_SHARE.numerator * total // LEAST_SHARE.denominator)
