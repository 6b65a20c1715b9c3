"""What is inferred beyond types: times, natural language, images, bounds with slack; each against an oracle."""

from __future__ import annotations

import math
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from drivetrain.data import StatisticsAccumulator, anomalous_rows, infer_schema, source_of, validate
from drivetrain.data.schema_inference.infer import least_present
from drivetrain.data.schemas.schema import Count, Feature, Presence, Range, Schema, Semantic, Time, Values
from drivetrain.data.schemas.time_formats import FORMATS, pattern, reads_as_time
from drivetrain.data.stats.document import Statistics, from_states
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

RECENT = Count(1990, 2029)
DIGITS = ("%Y%m%d", "%m%d%Y", "%d%m%Y")


def stats(values: Any, limit: int = 100_000) -> Statistics:
    state = StatisticsAccumulator(limit)
    state.add_batch(pa.RecordBatch.from_arrays([pa.array(values)], ["x"]))
    return from_states({"train": state})


def inferred(values: Any, limit: int = 100_000, **options: Any) -> Feature:
    return infer_schema(stats(values, limit), **options).features[0]


def moments(count: int, seed: int = 0) -> list[datetime]:
    """Days above 12 among them, so that day and month cannot be taken for each other."""
    draw = random.Random(seed)
    start = datetime(2011, 1, 20, 13, 14, 15, 160_000, UTC)
    return [start + timedelta(seconds=draw.randrange(200_000_000)) for _ in range(count)]


@pytest.mark.parametrize("text", FORMATS)
def test_text_of_every_format_is_recognised(text: str) -> None:
    """Written by strftime; where another format reads all of it as well, the first in TFDV's order is inferred."""
    values = [moment.strftime(text) for moment in moments(150)]
    found = inferred(values).domain
    assert isinstance(found, Time)
    assert found.min_mass == 1
    first = next(one for one in FORMATS if all(_strptime(value, one) for value in values))
    assert found.format == first
    if "%y" not in text:  # 13-01-20 reads both ways round
        assert found.format == text


def _strptime(value: str, text: str) -> bool:
    if text in DIGITS and len(value) != 8:
        return False
    try:
        datetime.strptime(value, text)
    except ValueError:
        return False
    return True


dates = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
noise = st.text("0123456789-/: TZ.+abMonJuly", max_size=24)


@pytest.mark.slow
@given(st.lists(st.builds(lambda date, text: date.strftime(text), dates, st.sampled_from(FORMATS)) | noise, min_size=1))
def test_what_strptime_reads_is_read(values: list[str]) -> None:
    """Of texts that are written by a format or nearly so, ours reads those that Python does, but for days of months."""
    array = pa.array([value.encode() for value in values], pa.large_binary())
    for text in FORMATS:
        ours = reads_as_time(array, text).tolist()
        for value, found in zip(values, ours, strict=True):
            if _strptime(value, text):
                # Python's %z also takes seconds and fractions of an offset, and an offset without its colon
                assert found or "%z" in text, (value, text)
            elif found:
                # The 31st of February fits the pattern, as in TFDV; weekdays are not compared with dates by either
                assert "%d" in text, (value, text)


def test_eight_tenths_of_a_hundred_values() -> None:
    day = [f"2018-11-{1 + i % 30:02d}" for i in range(100)]
    assert inferred(day).domain == Time("%Y-%m-%d", years=RECENT)
    assert not isinstance(inferred(day[:99]).domain, Time)
    assert inferred([*day[:80], *["?"] * 20]).domain == Time("%Y-%m-%d", 0.8, RECENT)
    assert not isinstance(inferred([*day[:79], *["?"] * 21]).domain, Time)
    # TFDV gives up at one empty text
    assert inferred([*day[:99], ""]).domain == Time("%Y-%m-%d", 0.99, RECENT)
    assert inferred(day, semantics=False).domain != Time("%Y-%m-%d", years=RECENT)


def test_six_digits_are_no_date() -> None:
    """TFDV reads 123411 as the year 1234, month 1, day 1."""
    assert not isinstance(inferred([f"{1234 + i}11" for i in range(150)]).domain, Time)
    assert inferred([f"201811{1 + i % 30:02d}" for i in range(150)]).domain == Time("%Y%m%d", years=RECENT)


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("SECONDS", 1), ("MILLISECONDS", 10**3), ("MICROSECONDS", 10**6), ("NANOSECONDS", 10**9)],
)
def test_integers_since_1970(unit: str, scale: int) -> None:
    seconds = [int(moment.timestamp()) for moment in moments(120)]
    values = [second * scale for second in seconds]
    feature = inferred(values)
    assert feature.domain == Time(f"UNIX_{unit}", 0.8)
    assert f"all the values are in 1990 to 2029 as UNIX_{unit}" in feature.evidence
    assert inferred(values, limit=10).domain == feature.domain
    (anomaly,) = validate(stats([value // 1000 for value in values]), Schema((feature,))).anomalies
    assert anomaly.type == "TIME_TYPE_UNEXPECTED_VALUES"


def test_times_among_too_many_texts_for_a_table() -> None:
    """Of a column that only has sketches a sample of the texts tells, beside the frequent ones."""
    start = datetime(2013, 1, 1)
    texts = [str(start + timedelta(minutes=i)) for i in range(20_000)]
    feature = inferred(texts, limit=1000)
    assert feature.domain == Time("%Y-%m-%d %H:%M:%S", years=RECENT)
    assert "all 512 values kept read as" in feature.evidence
    assert validate(stats(texts, 1000), Schema((feature,))).passed
    odd = [text if i % 4 else f"row {i}" for i, text in enumerate(texts)]
    assert inferred(odd, limit=1000).domain is None  # three of four
    (anomaly,) = validate(stats(odd, 1000), Schema((feature,))).anomalies
    assert anomaly.type == "TIME_TYPE_UNEXPECTED_VALUES"
    share = re.search(r"\((.*) %\)", anomaly.message)
    assert share is not None
    assert abs(float(share[1]) - 25) < 6  # 3 standard errors of 512
    assert {value["count"] for value in anomaly.values} == {1}
    frequent = ["unknown"] * 30_000 + texts  # three of five rows, and one value of 20,001
    assert inferred(frequent, limit=1000).domain is None
    domain = inferred(["2013-01-01 00:00:00"] * 60_000 + odd, limit=1000).domain
    assert isinstance(domain, Time)
    assert abs(domain.min_mass - 75 / 80) < 0.015


def test_days_since_1970_are_recognised_where_asked_for() -> None:
    """From 7305 (1990-01-01) to before 21915 (2030-01-01), by the calendar."""
    epoch = datetime(1970, 1, 1)
    assert ((datetime(1990, 1, 1) - epoch).days, (datetime(2030, 1, 1) - epoch).days) == (7305, 21915)
    days = list(range(21915 - 120, 21915))
    assert inferred(days).domain is None
    assert inferred(days, semantics=True).domain == Time("UNIX_DAYS", 0.8)
    assert inferred([day + 25 for day in days], semantics=True).domain is None


def test_natural_language() -> None:
    words = ["it", "was", "the", "best", "of", "times", "worst"]
    draw = random.Random(1)
    texts = [" ".join(draw.choices(words, k=5)) for _ in range(200)]
    assert inferred(texts).domain == Semantic("natural_language")
    assert inferred(texts, limit=20).domain == Semantic("natural_language")
    assert inferred([" ".join(["of"] * 5 + [str(i)]) for i in range(200)]).domain is None  # two letters on average
    assert inferred([f"best times{i}" for i in range(200)]).domain is None  # two words
    assert inferred([text.encode() for text in texts]).domain == Semantic("natural_language")


COMPANIES = [
    f"{name} {kind} of {city}"
    for name in ("Blue Star", "Yellow Cab", "City Taxi", "Sun", "Flash")
    for kind in ("Service", "Affiliation", "Company")
    for city in ("Chicago", "the North Side", "Cook County", "Oslo")
]


@pytest.mark.parametrize("options", [{}, {"semantics": True}, {"semantics": False}])
def test_few_texts_are_a_domain_also_where_they_are_words(options: dict[str, Any]) -> None:
    """A category of names has values that come again; any invented one is an anomaly."""
    draw = random.Random(2)
    rows = draw.choices(COMPANIES, weights=range(1, 61), k=15_000)
    schema = infer_schema(stats(rows), **options)
    assert schema.features[0].domain == Values(tuple(sorted(set(rows))))
    (anomaly,) = validate(stats([*rows, "Gordon Taxi of Elmhurst"]), schema).anomalies
    assert anomaly.type == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
    assert anomaly.values == ({"value": "Gordon Taxi of Elmhurst", "count": 1},)
    assert inferred([row.encode() for row in rows], **options).domain == schema.features[0].domain


def test_free_text_is_what_seldom_comes_again_or_is_too_much_for_a_list() -> None:
    """The first hundred messages of a column are all distinct: a list of them would refuse the next."""
    texts = [f"ride {i} from {COMPANIES[i % 60]}" for i in range(100)]
    language = Semantic("natural_language")
    assert inferred(texts).domain == language
    assert inferred([*texts, *texts[:33]]).domain == language  # 67 of 133 rows are alone
    assert inferred([*texts, *texts[:34]]).domain == Values(tuple(sorted(texts)))  # 66 of 134
    twice = 2 * [*texts, "ride 100 to the lake"]
    assert inferred(twice).domain == language  # 101 distinct
    assert isinstance(inferred(twice, max_values=101).domain, Values)
    assert inferred(2 * texts, max_values=99).domain == language


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_many_texts_that_come_again_are_a_list_for_most_rows(seed: int, words: bool) -> None:
    """Some are seldom seen, so a few new ones are expected; a column of invented ones is an anomaly."""
    names = [f"{COMPANIES[i % 60]} no. {i}" if words else f"{i:x}x" for i in range(300)]
    weights = [1 / (1 + i) for i in range(300)]
    draw = random.Random(seed)
    schema = infer_schema(stats(draw.choices(names, weights, k=5_000)))
    domain = schema.features[0].domain
    assert isinstance(domain, Values)
    assert len(domain.values) > 250
    known = sum(weight for name, weight in zip(names, weights, strict=True) if name in domain.values)
    assert 0.8 < domain.min_mass < known / sum(weights)
    for rows in (50, 5_000):
        assert not validate(stats(draw.choices(names, weights, k=rows)), schema).anomalies
    (anomaly,) = validate(stats([name.upper() for name in draw.choices(names, weights, k=5_000)]), schema).anomalies
    assert anomaly.type == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
    assert "may have others" in schema.features[0].evidence


def test_texts_of_which_the_next_rows_have_others_are_no_list() -> None:
    names = [f"{i:x}x" for i in range(400)]
    assert isinstance(inferred(20 * names).domain, Values)
    assert inferred(20 * [*names, "another"]).domain is None  # 401
    assert inferred(2 * names[:200]).domain is None  # of so few rows it cannot be said
    assert inferred([*(5 * names[:150]), *names[150:]]).domain is None  # a quarter of the rows are alone
    assert inferred(20 * names[:101], max_values=100).domain is None


def test_images_by_their_first_bytes() -> None:
    heads = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"BM"]
    images = [heads[i % 4] + i.to_bytes(4, "big") for i in range(100)]
    feature = inferred(images)
    assert feature.domain == Semantic("image")
    assert "25 bmp, 25 gif, 25 jpeg, 25 png" in feature.evidence
    assert inferred([*images[:79], *[b"\0" + one for one in images[:21]]]).domain is None


@pytest.mark.parametrize("values", [["a", "b"], ["1", "22"], ["true", "false"], ["", "é"]])
def test_bytes_that_are_text_have_the_domain_of_the_text(values: list[str]) -> None:
    """As in TFDV, which knows text as bytes only: tf.Example has no other."""
    raw = [value.encode() for value in values]
    assert inferred(raw).domain == inferred(values).domain is not None
    assert inferred([*raw, b"\xff"]).domain is None
    accepted = infer_schema(stats(raw))
    assert not validate(stats(raw), accepted).anomalies
    assert validate(stats([*raw, b"other"]), accepted).errors == 1


def test_a_wrong_time_is_an_anomaly_with_its_rows() -> None:
    schema = Schema((Feature("x", "string", domain=Time("%Y-%m-%d")),))
    table = pa.table({"x": ["2018-11-01", None, "01.11.2018", "2018-11-02"]})
    found = validate(stats(table["x"].to_pylist()), schema)
    (anomaly,) = anomalous_rows({"train": source_of(table)}, found, schema).anomalies
    assert (anomaly.type, anomaly.values) == (
        "TIME_TYPE_UNEXPECTED_VALUES",
        ({"value": "01.11.2018", "count": 1},),
    )
    assert [row["row"] for row in anomaly.rows] == [2]
    lenient = Schema((Feature("x", "string", domain=Time("%Y-%m-%d", 0.6)),))
    assert validate(stats(table["x"].to_pylist()), lenient).passed


def test_a_clock_that_was_never_set_is_no_time_of_this_century() -> None:
    """Where all years seen lie in 1990 to 2029, the bound that integers have."""
    days = [f"{1990 + i % 40}-03-{1 + i % 28:02}T00:00:00Z" for i in range(200)]
    schema = Schema((inferred(days),))
    assert validate(stats(days), schema).passed
    for odd in ("1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "2030-01-01T00:00:00Z"):
        table = pa.table({"x": [*days, odd]})
        anomalies = validate(stats(table["x"].to_pylist()), schema)
        (anomaly,) = anomalous_rows({"train": source_of(table)}, anomalies, schema).anomalies
        assert (anomaly.type, [row["row"] for row in anomaly.rows]) == ("TIME_TYPE_UNEXPECTED_VALUES", [200])
        assert f"do not read as %Y-%m-%dT%H:%M:%S%z in 1990 to 2029, e.g. '{odd}'" in anomaly.message
    assert inferred([*days, "1970-01-01T00:00:00Z"]).domain == Time("%Y-%m-%dT%H:%M:%S%z")
    assert inferred([f"{1 + i % 12}:{i % 60:02}" for i in range(120)]).domain == Time("%H:%M")


@given(st.integers(0, 9999), st.integers(0, 9999), st.integers(1, 9999))
def test_years_are_compared_as_numbers(first: int, last: int, year: int) -> None:
    domain = Time("%d.%m.%Y", years=Count(first, last))
    array = pa.array([f"28.02.{year:04}".encode()], pa.large_binary())
    assert reads_as_time(array, domain.format, domain.year_ends).tolist() == [first <= year <= last]


def test_a_user_may_name_other_directives() -> None:
    moment = datetime(2018, 3, 4, 17, 6, 7)
    for text in ("%A, %d %B %Y", "%I:%M %p", "%Y-%j", "%d.%m.%Y %H Uhr", "100%% %Y"):
        array = pa.array([moment.strftime(text).encode(), b"x"], pa.large_binary())
        assert reads_as_time(array, text).tolist() == [True, False], pattern(text)
    with pytest.raises(InputError, match="%Q is not a directive"):
        Schema((Feature("x", "string", domain=Time("%Q")),))
    with pytest.raises(InputError, match="no directive of strptime"):
        Schema((Feature("x", "string", domain=Time("date")),))
    with pytest.raises(InputError, match="for int, not string"):
        Schema((Feature("x", "string", domain=Time("UNIX_DAYS")),))


# --- slack


def test_nothing_is_bounded_without_slack() -> None:
    feature = inferred([1.0, 2.0, None])
    assert (feature.domain, feature.presence) == (None, Presence(None, 1))


def test_ranges_with_slack() -> None:
    assert inferred([10, 60], slack=0.1).domain == Range(5, 65)
    assert inferred([1, 60], slack=0.1).domain == Range(0, 66)  # was never negative
    assert inferred([-60, -1], slack=0.1).domain == Range(-66, 0)
    assert inferred([7, 7], slack=0.1).domain is None
    assert inferred([0, 1], slack=0.1).domain is not None  # a bool
    assert inferred([10, 60], slack=0.0).domain == Range(10, 60)
    with pytest.raises(InputError, match="slack"):
        inferred([1], slack=-1)


@given(
    st.lists(st.floats(-1e12, 1e12) | st.integers(-(10**12), 10**12).map(float), min_size=2, max_size=20),
    st.sampled_from([0.0, 0.05, 0.1, 1.0]),
)
def test_what_was_seen_is_in_the_range(values: list[float], slack: float) -> None:
    feature = inferred(values, slack=slack)
    assert validate(stats(values), Schema((feature,))).passed
    if isinstance(feature.domain, Range):
        low, high = np.min(values), np.max(values)
        assert feature.domain.min is not None
        assert feature.domain.max is not None
        assert low - (slack + 0.01) * (high - low) <= feature.domain.min <= low
        assert high <= feature.domain.max <= high + (slack + 0.01) * (high - low)


@given(st.integers(1, 500), st.integers(1, 500))
def test_the_share_present_is_a_confidence_bound(present: int, missing: int) -> None:
    interval = scipy.stats.binomtest(present, present + missing, alternative="greater").proportion_ci(0.99, "exact")
    assert least_present(present, present + missing, 0.0) == pytest.approx(interval.low, abs=1.1e-3)
    assert least_present(present, present + missing, 0.0) <= interval.low
    assert least_present(present, present + missing, 0.1) == pytest.approx(interval.low * 0.9, abs=1.1e-3)


def test_the_smallest_span_has_a_range() -> None:
    assert inferred([0.0, 5e-324], slack=0.0).domain == Range(0.0, 5e-324, disallow_nan=True)


def test_nan_is_no_value_of_a_range_that_never_had_it() -> None:
    schema = Schema((inferred([1.0, 2.0], slack=0.1),))
    assert [anomaly.type for anomaly in validate(stats([1.0, math.nan]), schema).anomalies] == ["FLOAT_TYPE_HAS_NAN"]
    assert inferred([1.0, 2.0, math.nan], slack=0.1).domain == Range(0.9, 2.1)
    assert inferred([1, 2], slack=0.0).domain == Range(1, 2)
    assert inferred([1.0, 2.0]).domain is None


def test_presence_with_slack() -> None:
    half = inferred([1, None] * 500, slack=0.1)
    assert half.presence.min_fraction is not None
    assert 0.4 < half.presence.min_fraction < 0.45
    assert "99% confidence and slack 0.1" in half.evidence
    assert inferred([1, 2], slack=0.1).presence == Presence(1.0, 1)


@pytest.mark.parametrize("slack", [0, 0.25, 10.0])
def test_what_a_range_was_inferred_from_meets_it(slack: float) -> None:
    """Also with infinities, and where the slack leads out of the numbers there are."""
    whole = Range(-(2**63), 2**63 - 1)
    for values, domain in (
        ([0.0, 1.0, math.inf], Range(min=0, disallow_nan=True)),
        ([-math.inf, 0.0, 1.0], Range(max=1 + slack, disallow_nan=True)),
        ([-math.inf, 0.0, 1.0, math.inf], None),
        ([-8e307, 8e307], {0: Range(-8e307, 8e307, True), 0.25: Range(-1.2e308, 1.2e308, True)}.get(slack)),
        ([-(2**63), 2**63 - 1], {0: whole, 0.25: Range(max=2**63 - 1 + 2**62)}.get(slack)),
    ):
        found = stats(values)
        schema = infer_schema(found, slack=slack)
        assert schema.features[0].domain == domain
        assert not validate(found, schema).anomalies
