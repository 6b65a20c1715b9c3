"""Cron: five fields in a zone give the same moments as the six fields in UTC that Kubeflow is handed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from cronsim import CronSim
from drivetrain.errors import InputError
from drivetrain.pipelines.kubeflow.cron import to_six, zone
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from .go import build

_OFFSETS = [timedelta(minutes=m) for m in (0, 60, 120, -180, 330, 345, -210, 540, 720, -660, 840)]
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def _field(low: int, high: int, names: list[str] | None = None, first: int = 0) -> st.SearchStrategy[str]:
    """What a person may write in a field: stars, steps, ranges, lists, names."""
    numbers = st.integers(low, high)

    def spelled(number: int) -> st.SearchStrategy[str]:
        named = [names[(number - first) % len(names)]] if names else []
        return st.sampled_from([str(number), *named, *[name.upper() for name in named]])

    single = numbers.flatmap(spelled)
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, 12)
    longer = ranges.filter(lambda text: len(set(text.split("-"))) > 1)  # cronsim takes 5-5/2 for 5/2
    stepped = st.tuples(longer | st.just("*"), steps).map(lambda pair: f"{pair[0]}/{pair[1]}")
    part = single | ranges | stepped
    lists = st.lists(part, min_size=1, max_size=3).map(",".join)
    return st.just("*") | single | part | lists


EXPRESSIONS = st.tuples(
    _field(0, 59), _field(0, 23), st.just("*") | _field(1, 31), st.just("*") | _field(1, 12, _MONTHS, 1),
    st.just("*") | _field(0, 7, _DAYS),
).map(" ".join)  # fmt: skip
STARTS = st.datetimes(datetime(2026, 1, 1), datetime(2029, 12, 31)).map(lambda at: at.replace(second=0, microsecond=0))


def _local(text: str, start: datetime, offset: timedelta) -> Iterator[datetime]:
    """When a clock at this offset shows what is asked for, as UTC: Debian's cron, as another reads it."""
    return (at - offset for at in CronSim(text, start + offset))


def _tried(text: str, offset: timedelta) -> tuple[str, str]:
    """The six fields, or why there are none."""
    try:
        return to_six(text, offset), ""
    except InputError as error:
        return "", error.message


def _utc(six: str, start: datetime) -> Iterator[datetime]:
    second, _, five = six.partition(" ")
    assert second == "0"
    return iter(CronSim(five, start))


@given(EXPRESSIONS, st.sampled_from(_OFFSETS), STARTS)
@example("0 3 * * *", timedelta(hours=1), datetime(2026, 1, 1))
@example("30 1 * * sun", timedelta(hours=2), datetime(2026, 1, 1))
@example("0 0 1 feb *", timedelta(hours=9), datetime(2026, 1, 1))
@example("0 22 31 * *", timedelta(hours=-3), datetime(2026, 1, 1))
@example("0 1 */2 * 1", timedelta(0), datetime(2026, 1, 1))
@example("0 1 5 * 0-7", timedelta(hours=9), datetime(2026, 1, 1))
@example("0 1 2-5 * 1", timedelta(hours=9), datetime(2026, 1, 1))
@settings(max_examples=100)
def test_the_six_fields_in_utc_name_the_moments_of_the_five_at_an_offset(
    text: str, offset: timedelta, start: datetime
) -> None:
    six, refused = _tried(text, offset)
    if refused:
        assume(not offset)  # what an offset cannot keep is refused, tested below
        assert "no such date" in refused  # without one all can be kept
        return
    assert list(islice(_utc(six, start), 40)) == list(islice(_local(text, start, offset), 40))


@given(EXPRESSIONS, st.sampled_from([o for o in _OFFSETS if o]), STARTS)
@settings(max_examples=40)
def test_what_is_refused_has_times_or_days_that_move(text: str, offset: timedelta, start: datetime) -> None:
    """A refusal is never of what stays on its days with whole hours."""
    _, refused = _tried(text, offset)
    if refused and "no such date" not in refused and "different hours" not in refused:
        shifts = ((at + offset).date() - at.date() for at in islice(_local(text, start, offset), 2000))
        assert next(shifts, timedelta(1)) or any(shifts)  # there is no moment, or not all stay on their days


@pytest.mark.parametrize(
    ("text", "offset", "six"),
    [
        ("0 3 * * *", 0, "0 0 3 * * *"),
        ("@daily", 0, "0 0 0 * * *"),
        ("*/15 8-17 * * mon-fri", 0, "0 */15 8-17 * * 1-5"),
        ("0 3 * * *", 60, "0 0 2 * * *"),
        ("0 0 * * *", 330, "0 30 18 * * *"),
        ("0 1 * * 1", 120, "0 0 23 * * 0"),
        ("0 1 * * 7", 120, "0 0 23 * * 6"),
        ("0 23 31 * *", -120, "0 0 1 1 1,2,4,6,8,9,11 *"),
        ("0 1 2-28 * *", 120, "0 0 23 1-27 * *"),
    ],
)
def test_known_translations(text: str, offset: int, six: str) -> None:
    assert to_six(text, timedelta(minutes=offset)) == six


@pytest.mark.parametrize(
    ("text", "offset", "reason"),
    [
        ("0 1 1 * *", 120, "across the ends of months"),
        ("0 1 * 3 *", 120, "across the ends of months"),
        ("0 1,5 * * 1", 120, "different days in UTC"),
        ("0,50 9 * * *", 345, "different hours in UTC"),
        ("0 1 */2 * 1", 120, "both its kinds of days"),
        ("0 1 * 3 1", 120, "across the ends of months"),
        ("0 0 31 2 *", 0, "no such date"),
        ("0 0 3 * * *", 0, "six fields"),
        ("0 3 * *", 0, "4 fields"),
        ("60 3 * * *", 0, "minute 60 is out of range"),
        ("0 3 * * fri-mon", 0, "goes backwards"),
        ("0 3 L * *", 0, "day of the month 'L'"),
        ("0 3 ? * *", 0, "cannot be read"),
        ("0 3 * foo *", 0, "month 'foo'"),
        ("5/10 3 * * *", 0, "nothing to go over"),
        ("*/0 3 * * *", 0, "nothing to go over"),
        ("@reboot", 0, "is not a time"),
        ("", 0, "0 fields"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_its_reason(text: str, offset: int, reason: str) -> None:
    with pytest.raises(InputError, match="cannot be a schedule") as caught:
        to_six(text, timedelta(minutes=offset))
    assert reason in caught.value.message
    assert caught.value.fix


def test_zones_with_one_offset_are_taken_and_others_refused() -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert zone("UTC") == timedelta(0)
    assert zone("Asia/Tokyo", now) == timedelta(hours=9)
    assert zone("Asia/Kolkata", now) == timedelta(hours=5, minutes=30)
    assert zone("+05:45") == timedelta(hours=5, minutes=45)
    assert zone("UTC-3") == timedelta(hours=-3)
    with pytest.raises(InputError, match=r"clocks of Europe/Oslo change \(from \+01:00 to \+02:00 by 2027-03-28\)"):
        zone("Europe/Oslo", now)
    with pytest.raises(InputError, match="Africa/Casablanca change"):
        zone("Africa/Casablanca", now)  # around Ramadan, not by a rule
    assert zone("Europe/Oslo", now, datetime(2027, 3, 1, tzinfo=UTC)) == timedelta(hours=1)  # it ends before they do
    with pytest.raises(InputError, match="no time zone 'Mars/Olympus'"):
        zone("Mars/Olympus")
    with pytest.raises(InputError, match="no zone with the offset"):
        zone("+25:00")


@pytest.fixture(scope="module")
def robfig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The very library that Kubeflow reads its six fields with, built."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    for file in (Path(__file__).parent / "cron_peer").iterdir():
        shutil.copy(file, folder)
    return build(folder)


@pytest.mark.slow
def test_kubeflows_own_reader_sees_the_same_moments(robfig: Path) -> None:
    """Many expressions at once: robfig/cron v1, which reads stars and days in its own way, against Debian's reading."""
    asked: list[tuple[str, timedelta, datetime, str]] = []

    @given(EXPRESSIONS, st.sampled_from(_OFFSETS), STARTS)
    @settings(max_examples=400, database=None)
    def collect(text: str, offset: timedelta, start: datetime) -> None:
        try:
            six = to_six(text, offset)
        except InputError:
            return
        local = next(_local(text, start, offset), None)
        if local is not None and local < start + timedelta(days=4 * 365):  # robfig looks five years ahead
            asked.append((text, offset, start, six))

    collect()
    lines = "".join(f"{six}\t{start.isoformat()}Z\t20\n" for _, _, start, six in asked)
    answer = subprocess.run([robfig], input=lines, capture_output=True, text=True, check=True, timeout=120)
    answers = answer.stdout.splitlines()
    assert len(answers) == len(asked) > 100
    for (text, offset, start, six), line in zip(asked, answers, strict=True):
        found = [datetime.fromisoformat(each).replace(tzinfo=None) for each in line.split()]
        expected = list(islice(_local(text, start, offset), 20))
        far = next((n for n, at in enumerate(found) if at.year < 1900), len(found))  # its word for "none in five years"
        assert found[:far] == expected[:far], (text, offset, six)
        assert far
