"""Windows over spans, as pure functions: which of the artifacts that carry a span and a version are taken together.

The semantics are those of TFX's resolver functions of the same names. Of each span the newest version counts, unless
all versions are kept; of several of the same version, the last one in the order given. Too few spans raise `Absent`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from ...errors import InputError

T = TypeVar("T")


class Spanned(NamedTuple, Generic[T]):
    """Something with its span and its version; without a version, it is older than with any."""

    span: int
    version: int | None
    item: T

    @property
    def order(self) -> tuple[int, int]:
        """A key that sorts by span, then version."""
        return self.span, -1 if self.version is None else self.version


class Absent(InputError):  # noqa: N818 - no fault of anybody
    """Too few spans are there: the node that asked is skipped, not failed. The message says which are missing."""


def latest_version(artifacts: Iterable[Spanned[T]], n: int = 1) -> list[Spanned[T]]:
    """The n of the largest versions of the largest spans, these first."""
    at_least("n", n, 1)
    return list(reversed(_sorted(artifacts)))[:n]


def all_spans(artifacts: Iterable[Spanned[T]], *, keep_all_versions: bool = False) -> list[Spanned[T]]:
    """Every span, ascending, with its newest version alone unless all are kept."""
    ordered = _sorted(artifacts)
    return ordered if keep_all_versions else list({artifact.span: artifact for artifact in ordered}.values())


def static_range(
    artifacts: Iterable[Spanned[T]],
    start: int | None = None,
    end: int | None = None,
    *,
    exclude: Collection[int] = (),
    keep_all_versions: bool = False,
    min_spans: int | None = None,
) -> list[Spanned[T]]:
    """The spans from `start` to `end`, both included.

    Args:
        artifacts: To choose from.
        start: The first span; any where None.
        end: The last span; any where None.
        exclude: Spans that are left out.
        keep_all_versions: Whether all versions of a span are taken.
        min_spans: How many spans must be there; where None, every one of the range that is not excluded, and 1 where
            the range has an open end.

    Raises:
        Absent: There are fewer.
    """
    for name, value in (("start", start), ("end", end)):
        if value is not None:
            at_least(name, value, 0)
    if start is not None and end is not None and start > end:
        raise InputError(f"a range from span {start} to {end} has no spans", fix="let it start before it ends")
    window = [
        artifact
        for artifact in all_spans(artifacts, keep_all_versions=keep_all_versions)
        if (start is None or artifact.span >= start)
        and (end is None or artifact.span <= end)
        and artifact.span not in exclude
    ]
    if min_spans is None and start is not None and end is not None:
        without = {span for span in exclude if start <= span <= end}
        wanted = (span for span in range(start, end + 1) if span not in without)  # seconds are spans too: no list
        return _enough(window, max(end - start + 1 - len(without), 1), wanted)
    return _enough(window, 1 if min_spans is None else min_spans)


def rolling_range(
    artifacts: Iterable[Spanned[T]],
    n: int = 1,
    *,
    start: int = 0,
    skip: int = 0,
    exclude: Collection[int] = (),
    keep_all_versions: bool = False,
    min_spans: int | None = None,
) -> list[Spanned[T]]:
    """The last n spans that are there, ascending.

    Args:
        artifacts: To choose from.
        n: How many spans.
        start: Earlier spans do not count.
        skip: So many of the newest spans are passed over.
        exclude: Spans that are left out; they do not count for `skip`.
        keep_all_versions: Whether all versions of a span are taken.
        min_spans: How many spans must be there; n where None.

    Raises:
        Absent: There are fewer.
    """
    at_least("n", n, 1)
    at_least("start", start, 0)
    at_least("skip", skip, 0)
    left = [artifact for artifact in artifacts if artifact.span >= start and artifact.span not in exclude]
    spans = sorted({artifact.span for artifact in left})
    chosen = spans[: max(len(spans) - skip, 0)][-n:]
    window = [artifact for artifact in all_spans(left, keep_all_versions=keep_all_versions) if artifact.span in chosen]
    return _enough(window, n if min_spans is None else min_spans)


def consecutive_spans(
    artifacts: Iterable[Spanned[T]],
    start: int | None = None,
    *,
    skip: int = 0,
    exclude: Collection[int] = (),
    keep_all_versions: bool = False,
) -> list[Spanned[T]]:
    """The spans from `start` on without a gap, ascending.

    Args:
        artifacts: To choose from.
        start: The first span; the smallest there is where None.
        skip: The last span that counts is the largest there is less this.
        exclude: Spans that are left out; they make no gap.
        keep_all_versions: Whether all versions of a span are taken.
    """
    at_least("start", 0 if start is None else start, 0)
    at_least("skip", skip, 0)
    by_span: dict[int, list[Spanned[T]]] = {}
    for artifact in all_spans(artifacts, keep_all_versions=keep_all_versions):
        by_span.setdefault(artifact.span, []).append(artifact)
    if not by_span:
        return []
    consecutive: list[Spanned[T]] = []
    for span in range(min(by_span) if start is None else start, max(by_span) - skip + 1):
        if span in exclude:
            continue
        if span not in by_span:
            break
        consecutive += by_span[span]
    return consecutive


def sliding_window(artifacts: Sequence[T], size: int, *, stride: int = 1) -> list[list[T]]:
    """Windows of `size` artifacts that follow each other, each begun `stride` after the one before; none is shorter."""
    at_least("size", size, 1)
    at_least("stride", stride, 1)
    return [list(artifacts[at : at + size]) for at in range(0, len(artifacts) - size + 1, stride)]


def sequential_rolling_range(
    artifacts: Iterable[Spanned[T]],
    n: int = 1,
    *,
    start: int | None = None,
    skip: int = 0,
    exclude: Collection[int] = (),
    keep_all_versions: bool = False,
    stride: int = 1,
) -> list[list[Spanned[T]]]:
    """Windows of n spans over those that follow each other without a gap, see `consecutive_spans`; oldest first."""
    consecutive = consecutive_spans(artifacts, start, skip=skip, exclude=exclude, keep_all_versions=keep_all_versions)
    groups: dict[int, list[Spanned[T]]] = {}
    for artifact in consecutive:
        groups.setdefault(artifact.span, []).append(artifact)
    windows = sliding_window(list(groups.values()), n, stride=stride)
    return [[artifact for group in window for artifact in group] for window in windows]


def paired_spans(
    named: Mapping[str, Iterable[Spanned[T]]], *, match_version: bool = True, keep_all_versions: bool = False
) -> list[dict[str, Spanned[T]]]:
    """One artifact of each name, for every span that all names have; ascending.

    Args:
        named: What to pair, by name.
        match_version: Whether the versions must be equal too; otherwise the newest ones of the span are paired.
        keep_all_versions: Whether every version that all names have makes a pair, or only the newest.

    Raises:
        InputError: All versions are to be kept without being matched.
    """
    if keep_all_versions and not match_version:
        raise InputError(
            "keep_all_versions needs match_version: versions that differ make no pairs", fix="leave one of them out"
        )
    by_key: list[dict[Hashable, Spanned[T]]] = [
        {(artifact.order if match_version else artifact.span): artifact for artifact in _sorted(artifacts)}
        for artifacts in named.values()
    ]
    common = [key for key in by_key[0] if all(key in other for other in by_key[1:])] if by_key else []
    pairs = [dict(zip(named, (by_span[key] for by_span in by_key), strict=True)) for key in common]
    if keep_all_versions:
        return pairs
    return list({next(iter(pair.values())).span: pair for pair in pairs}.values())


def _sorted(artifacts: Iterable[Spanned[T]]) -> list[Spanned[T]]:
    return sorted(artifacts, key=lambda artifact: artifact.order)  # stable: of equal ones, the last given stays last


def _enough(window: list[Spanned[T]], wanted: int, which: Iterable[int] = ()) -> list[Spanned[T]]:
    spans = {artifact.span for artifact in window}
    there = sorted(spans)
    missing = wanted - len(there)
    if missing <= 0:
        return window
    named = list(islice((str(span) for span in which if span not in spans), 6))
    lacks = f" ({', '.join(named[:5])}{', …' if len(named) > 5 else ''})" if named else ""
    raise Absent(f"{missing} of {wanted} spans missing{lacks}; found {_shown(there)}")


def _shown(spans: Sequence[int]) -> str:
    if not spans:
        return "none"
    return ", ".join(map(str, spans)) if len(spans) <= 6 else f"{spans[0]}, {spans[1]}, …, {spans[-1]}"


def at_least(name: str, value: int, least: int) -> None:
    """Check that a number is whole and large enough.

    Raises:
        InputError: It is not.
    """
    if type(value) is not int or value < least:  # of a run's parameters: a JSON value of any type
        raise InputError(f"{name} is {value!r:.40}", fix=f"give a whole number, {least} or more")
