"""Windows over spans: TFX's cases, number by number, and the laws that hold for any history."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.resolvers.windows import (
    Absent,
    Spanned,
    all_spans,
    consecutive_spans,
    latest_version,
    paired_spans,
    rolling_range,
    sequential_rolling_range,
    sliding_window,
    static_range,
)
from hypothesis import given
from hypothesis import strategies as st


def things(*places: tuple[int, int | None]) -> list[Spanned[str]]:
    return [Spanned(span, version, f"{span}/{version}#{number}") for number, (span, version) in enumerate(places)]


def spans(*numbers: int) -> list[Spanned[str]]:
    return things(*((number, 0) for number in numbers))


def places(found: list[Spanned[str]]) -> list[tuple[int, int | None]]:
    return [(one.span, one.version) for one in found]


def numbers(found: list[Spanned[str]]) -> list[int]:
    return [one.span for one in found]


# -- the numbered cases


def test_case_10_a_rolling_range_with_all_versions() -> None:
    artifacts = things((1, 0), (2, 0), (3, 1), (3, 0), (7, 1), (8, 2))
    window = rolling_range(artifacts, 2, start=3, skip=1, keep_all_versions=True)
    assert places(window) == [(3, 0), (3, 1), (7, 1)]
    assert places(rolling_range(artifacts, 2, start=3, skip=1)) == [(3, 1), (7, 1)]


def test_case_11_a_static_range() -> None:
    found = static_range(spans(0, 1, 2, 2, 3, 4, 5, 7, 10), 0, 5, exclude=[2, 10], keep_all_versions=True)
    assert numbers(found) == [0, 1, 3, 4, 5]


def test_case_11_a_static_range_needs_all_its_spans() -> None:
    with pytest.raises(Absent, match=r"1 of 6 spans missing \(4\); found 0, 1, 2, 3, 5"):
        static_range(spans(0, 1, 2, 2, 3, 5, 7, 10), 0, 5)
    assert numbers(static_range(spans(0, 1, 2, 3, 5), 0, 5, min_spans=5)) == [0, 1, 2, 3, 5]


def test_case_11_a_static_range_of_nothing_but_what_is_excluded() -> None:
    with pytest.raises(Absent, match="1 of 1 spans missing; found none"):
        static_range(spans(0, 1, 2), 0, 2, exclude=[0, 1, 2])


def test_a_range_of_seconds_is_no_list() -> None:
    begin = 1_356_998_400  # 2013-01-01, in seconds since 1970
    with pytest.raises(Absent, match=f"31535997 of 31535999 spans missing \\({begin + 2}, {begin + 3},.* …\\); found"):
        static_range(spans(begin, begin + 1, begin + 9), begin, begin + 31_535_999, exclude=[begin + 9, 7])
    tracemalloc.start()
    with pytest.raises(Absent, match="1000000000000 of 1000000000001 spans missing"):
        static_range(spans(3), 0, 10**12)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_case_12_a_sequential_rolling_range() -> None:
    artifacts = things((1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (5, 0))
    windows = sequential_rolling_range(artifacts, 3, start=1, skip=1, exclude=[5], stride=2)
    assert [places(window) for window in windows] == [[(1, 0), (2, 0), (3, 1)]]


@pytest.mark.parametrize(
    ("size", "stride", "windows"),
    [(2, 1, ["AB", "BC", "CD"]), (2, 2, ["AB", "CD"]), (2, 3, ["AB"]), (5, 1, []), (4, 9, ["ABCD"])],
)
def test_case_13_sliding_windows(size: int, stride: int, windows: list[str]) -> None:
    assert sliding_window("ABCD", size, stride=stride) == [list(window) for window in windows]


def test_case_14_paired_spans() -> None:
    x = things((0, 0), (0, 1), (1, 0), (2, 0))
    y = things((0, 0), (0, 1), (1, 0), (3, 0))

    def pairs(**options: bool) -> list[tuple[tuple[int, int | None], ...]]:
        found = paired_spans({"x": x, "y": y}, **options)
        return [((pair["x"].span, pair["x"].version), (pair["y"].span, pair["y"].version)) for pair in found]

    assert pairs() == [((0, 1), (0, 1)), ((1, 0), (1, 0))]
    assert pairs(keep_all_versions=True) == [((0, 0), (0, 0)), ((0, 1), (0, 1)), ((1, 0), (1, 0))]
    y.append(Spanned(2, 5, "newer"))
    assert pairs() == [((0, 1), (0, 1)), ((1, 0), (1, 0))]
    assert pairs(match_version=False) == [((0, 1), (0, 1)), ((1, 0), (1, 0)), ((2, 0), (2, 5))]
    with pytest.raises(InputError, match="keep_all_versions needs match_version"):
        pairs(match_version=False, keep_all_versions=True)


def test_case_15_consecutive_spans_end_at_a_gap() -> None:
    assert numbers(consecutive_spans(spans(1, 2, 3, 4, 6), 1, skip=2)) == [1, 2, 3, 4]
    assert numbers(consecutive_spans(spans(1, 2, 3, 4, 6), 1)) == [1, 2, 3, 4]
    assert numbers(consecutive_spans(spans(1, 2, 4, 5, 6), 1)) == [1, 2]
    assert numbers(consecutive_spans(spans(1, 2, 4, 5, 6), 1, exclude=[3])) == [1, 2, 4, 5, 6]
    assert consecutive_spans(spans(2, 3), 1) == []
    assert numbers(consecutive_spans(spans(2, 3))) == [2, 3]


def test_latest_version() -> None:
    artifacts = things((3, 0), (1, 2), (3, 1), (2, 0))
    assert places(latest_version(artifacts, 2)) == [(3, 1), (3, 0)]
    assert latest_version([]) == []


def test_all_spans_takes_the_newest_of_each() -> None:
    artifacts = things((2, 0), (1, None), (1, 0), (1, None), (2, 0))
    assert [one.item for one in all_spans(artifacts)] == ["1/0#2", "2/0#4"]
    assert places(all_spans(artifacts, keep_all_versions=True)) == [(1, None), (1, None), (1, 0), (2, 0), (2, 0)]


# -- what is missing, and bad input


def test_too_few_spans_are_told() -> None:
    with pytest.raises(Absent, match="2 of 3 spans missing; found 4"):
        rolling_range(spans(4), 3)
    with pytest.raises(Absent, match="3 of 3 spans missing; found none"):
        rolling_range([], 3)
    assert numbers(rolling_range(spans(4), 3, min_spans=1)) == [4]
    assert rolling_range([], 3, min_spans=0) == []
    with pytest.raises(Absent, match=r"\(10, 11, 12, 13, 14, …\)"):
        static_range(spans(1), 1, 30, exclude=range(2, 10))
    with pytest.raises(Absent):
        rolling_range(spans(1, 2), 1, skip=3)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "2", None])
def test_what_is_no_count_is_told(n: int) -> None:
    for ask in (
        lambda: rolling_range(spans(1), n),
        lambda: sliding_window([1], n),
        lambda: latest_version(spans(1), n),
        lambda: sequential_rolling_range(spans(1), 1, stride=n),
    ):
        with pytest.raises(InputError, match="give a whole number, 1 or more"):
            ask()


@pytest.mark.parametrize("span", [-1, "1", 1.0, True])
def test_what_is_no_span_is_told(span: int) -> None:
    asks: list[Callable[[], object]] = [
        lambda: static_range(spans(1), span, 2),
        lambda: static_range(spans(1), None, span),
        lambda: rolling_range(spans(1), start=span),
        lambda: consecutive_spans(spans(1), span),
    ]
    for ask in asks:
        with pytest.raises(InputError, match="give a whole number, 0 or more"):
            ask()


def test_a_range_that_ends_before_it_starts() -> None:
    with pytest.raises(InputError, match="has no spans"):
        static_range(spans(1), 3, 2)


# -- laws, over any history

SPAN = st.integers(0, 12)
HISTORY = st.lists(st.tuples(SPAN, st.none() | st.integers(0, 3)), max_size=25).map(lambda made: things(*made))
EXCLUDE = st.sets(SPAN, max_size=4)


def newest(history: list[Spanned[str]]) -> dict[int, Spanned[str]]:
    """The last of the largest version of each span, found in another way."""
    best: dict[int, Spanned[str]] = {}
    for one in history:
        held = best.get(one.span)
        if held is None or (one.version is not None, one.version or 0) >= (held.version is not None, held.version or 0):
            best[one.span] = one
    return best


@given(HISTORY)
def test_every_span_once_in_its_newest_version(history: list[Spanned[str]]) -> None:
    assert all_spans(history) == [one for _, one in sorted(newest(history).items())]
    kept = all_spans(history, keep_all_versions=True)
    assert sorted(map(str, kept)) == sorted(map(str, history))


@given(HISTORY, st.integers(1, 6), st.integers(0, 4), st.integers(0, 3), EXCLUDE, st.booleans())
def test_a_rolling_range_is_the_end_of_what_is_there(
    history: list[Spanned[str]], n: int, start: int, skip: int, exclude: set[int], keep: bool
) -> None:
    left = sorted({one.span for one in history if one.span >= start and one.span not in exclude})
    expected = [span for place, span in enumerate(left) if len(left) - skip - n <= place < len(left) - skip]
    options = {"start": start, "skip": skip, "exclude": exclude, "keep_all_versions": keep}
    if not expected:
        with pytest.raises(Absent):
            rolling_range(history, n, min_spans=1, **options)  # type: ignore[arg-type]
        return
    window = rolling_range(history, n, min_spans=1, **options)  # type: ignore[arg-type]
    assert list(dict.fromkeys(numbers(window))) == expected
    if not keep:
        assert window == [newest(history)[span] for span in expected]
    if len(expected) < n:
        with pytest.raises(Absent, match=f"{n - len(expected)} of {n} spans"):
            rolling_range(history, n, **options)  # type: ignore[arg-type]
    else:
        assert rolling_range(history, n, **options) == window  # type: ignore[arg-type]


@given(HISTORY, SPAN, st.integers(0, 6))
def test_later_spans_do_not_change_what_an_older_one_sees(history: list[Spanned[str]], last: int, n: int) -> None:
    old = [one for one in history if one.span <= last]
    if old:
        end = max(one.span for one in old)
        assert rolling_range(old, n + 1, min_spans=1) == rolling_range(
            [one for one in history if one.span <= end], n + 1, min_spans=1
        )


@given(HISTORY, SPAN, st.integers(0, 8), EXCLUDE)
def test_a_static_range_is_whole_or_absent(
    history: list[Spanned[str]], start: int, length: int, exclude: set[int]
) -> None:
    wanted = [span for span in range(start, start + length + 1) if span not in exclude]
    best = newest(history)
    if wanted and all(span in best for span in wanted):
        assert static_range(history, start, start + length, exclude=exclude) == [best[span] for span in wanted]
    else:
        with pytest.raises(Absent):
            static_range(history, start, start + length, exclude=exclude)


@given(HISTORY, st.none() | SPAN, st.integers(0, 4), EXCLUDE)
def test_consecutive_spans_have_no_gap(
    history: list[Spanned[str]], start: int | None, skip: int, exclude: set[int]
) -> None:
    found = numbers(consecutive_spans(history, start, skip=skip, exclude=exclude))
    if not history:
        assert found == []
        return
    first = min(newest(history)) if start is None else start
    last = max(newest(history)) - skip
    expected = []
    for span in range(first, last + 1):
        if span not in exclude:
            if span not in newest(history):
                break
            expected.append(span)
    assert found == expected


@given(st.lists(st.integers(), max_size=12), st.integers(1, 5), st.integers(1, 5))
def test_sliding_windows_are_whole_and_in_step(items: list[int], size: int, stride: int) -> None:
    numpy = pytest.importorskip("numpy")
    windows = sliding_window(items, size, stride=stride)
    if len(items) < size:
        assert windows == []
    else:
        view = numpy.lib.stride_tricks.sliding_window_view(numpy.array(items, dtype=object), size)[::stride]
        assert windows == view.tolist()


@given(HISTORY, st.integers(1, 4), st.integers(1, 3))
def test_sequential_windows_slide_over_consecutive_spans(history: list[Spanned[str]], size: int, stride: int) -> None:
    windows = sequential_rolling_range(history, size, stride=stride)
    assert windows == sliding_window(consecutive_spans(history), size, stride=stride)
    kept = sequential_rolling_range(history, size, stride=stride, keep_all_versions=True)
    assert [sorted({one.span for one in window}) for window in kept] == [numbers(window) for window in windows]


@given(HISTORY, HISTORY)
def test_pairs_are_of_what_both_have(left: list[Spanned[str]], right: list[Spanned[str]]) -> None:
    loosely = paired_spans({"a": left, "b": right}, match_version=False)
    assert {pair["a"].span for pair in loosely} == newest(left).keys() & newest(right).keys()
    assert all(pair["a"] == newest(left)[pair["a"].span] for pair in loosely)
    every = paired_spans({"a": left, "b": right}, keep_all_versions=True)
    both = {(one.span, one.version) for one in left} & {(one.span, one.version) for one in right}
    assert {(pair["a"].span, pair["a"].version) for pair in every} == both
    assert len(every) == len(both)
    newest_each = paired_spans({"a": left, "b": right})
    assert [pair["a"].span for pair in newest_each] == sorted({span for span, _ in both})
    assert all(pair in every for pair in newest_each)
