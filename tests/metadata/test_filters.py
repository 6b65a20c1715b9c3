"""Filters: every expression finds what an evaluator of its own says, on both databases; mistakes are named."""

from __future__ import annotations

import functools
import json
import operator
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas
import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore, NotFound
from drivetrain.metadata.finding import RecordQuery
from drivetrain.metadata.records import ArtifactRecord, StagedArtifact
from drivetrain.tests.data.postgres import Server
from drivetrain.tests.metadata.conftest import StoreAddress, WrittenOnce
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
DAY = 86_400_000_000
STATES = ["LIVE", "DELETED", "ABANDONED"]
PROPERTIES: list[dict[str, Any]] = [
    {},
    {"span": 1, "by": "ann", "metrics": {"auc": 0.5}},
    {"span": 2.5, "by": "Ann", "passed": True, "metrics": {"auc": 0.9, "log-loss": 1.0}},
    {"span": "2", "by": "a_n", "passed": False, "metrics": {"auc": None}},
    {"span": None, "by": "a%n", "passed": "true", "metrics": {"auc": 1}},
    {"span": -3, "by": "it's", "passed": 1, "nested": {"a.b": {"c": 7}}},
    {"span": 2**53, "by": "", "metrics": {"auc": 1e-9}},
    {"span": {"a": 1}, "by": ["ann"]},
]


def write_records(where: str | Path) -> None:
    written = 0  # each is made a day after the one before, the last a day ago

    def clock() -> int:
        return int(NOW.timestamp() * 1e6) - (len(PROPERTIES) - written) * DAY

    with MetadataStore.open(where, clock=clock) as opened:
        previous: ArtifactRecord | None = None
        for written, properties in enumerate(PROPERTIES):
            run = opened.context("run", f"r{written % 3}")
            node = opened.context("node", f"p.N{written % 2}")
            inputs = {"in": [previous]} if previous is not None and written % 4 else {}
            execution = opened.start(f"Make{written % 2}", contexts=[run, node], inputs=inputs, properties=properties)
            new = StagedArtifact(f"T{written % 2}", f"artifacts/N/{written}/out", "f", written * 10, properties)
            previous = opened.publish(execution, {"out": [new]})["out"][0]
        written = len(PROPERTIES)
        for artifact in opened.artifacts():
            if (state := STATES[artifact.id % 3]) != "LIVE":
                opened.update_artifact(artifact, state=state)  # type: ignore[arg-type]


@pytest.fixture
def store(database_address: StoreAddress, written_once: WrittenOnce) -> Iterator[MetadataStore]:
    written_once(database_address("metadata"), write_records)
    with MetadataStore.open(database_address("metadata"), clock=lambda: int(NOW.timestamp() * 1e6)) as opened:
        yield opened


# What a filter is, for an evaluator that knows nothing of SQL: a comparison, ("not", a), ("and", a, b), ("or", a, b).
Expression = tuple[Any, ...]
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def text_of(expression: Expression) -> str:
    match expression:
        case ("not", inner):
            return f"not ({text_of(inner)})"
        case ("and" | "or" as word, left, right):
            return f"({text_of(left)} {word} {text_of(right)})"
        case ("null", name, negated):
            return f"{name} is {'not ' if negated else ''}null"
        case ("in", name, values):
            return f"{name} in ({', '.join(map(spelled, values))})"
    name, sign, value = expression
    return f"{name} {sign} {spelled(value)}"


def value_of(record: Mapping[str, Any], name: str) -> Any:
    value: Any = record
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def holds(expression: Expression, record: Mapping[str, Any]) -> bool | None:
    """Whether it holds; None where the record cannot say."""
    match expression:
        case ("not", inner):
            answer = holds(inner, record)
            return None if answer is None else not answer
        case ("and", left, right):
            both = holds(left, record), holds(right, record)
            return False if False in both else None if None in both else True
        case ("or", left, right):
            both = holds(left, record), holds(right, record)
            return True if True in both else None if None in both else False
        case ("null", name, negated):
            return bool((value_of(record, name) is None) != negated)
        case ("in", name, values):
            several = [holds((name, "=", value), record) for value in values]
            return True if True in several else (None if None in several else False)
    name, sign, wanted = expression
    value = value_of(record, name)
    kinds = [bool if isinstance(each, bool) else str if isinstance(each, str) else float for each in (value, wanted)]
    if not isinstance(value, bool | int | float | str) or kinds[0] is not kinds[1]:
        return None
    return bool(_COMPARE[sign](value, wanted))


_SIGNS = st.sampled_from(sorted(_COMPARE))
_JSON_NAMES = st.sampled_from(["property.span", "property.by", "property.passed", "metric.auc", "property.missing"])
_VALUES = st.sampled_from([1, 2.5, -3, 0.9, "ann", "Ann", "2", "it's", "", "true", True, False, 2**53])
_COMPARISONS = st.one_of(
    st.tuples(_JSON_NAMES, _SIGNS, _VALUES),
    st.tuples(st.sampled_from(["state", "type"]), _SIGNS, st.sampled_from(["LIVE", "DELETED", "T0", "x"])),
    st.tuples(st.sampled_from(["size", "id"]), _SIGNS, st.sampled_from([0, 3, 20, 45.5])),
    st.tuples(st.just("null"), st.one_of(_JSON_NAMES, st.just("name")), st.booleans()),
    st.tuples(st.just("in"), _JSON_NAMES, st.lists(_VALUES, min_size=1, max_size=3)),
)
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    _COMPARISONS,
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=EXPRESSIONS)
def test_a_filter_finds_what_it_says(store: MetadataStore, expression: Expression) -> None:
    facts = {
        artifact.id: {
            "id": artifact.id,
            "size": artifact.size,
            "type": artifact.type,
            "state": artifact.state,
            "name": artifact.name,
            "property": artifact.properties,
            "metric": artifact.properties.get("metrics", {}),
        }
        for artifact in store.artifacts(state=None)
    }
    expected = [number for number in sorted(facts, reverse=True) if holds(expression, facts[number])]
    assert [each.id for each in store.find_artifacts(RecordQuery(text_of(expression))).records] == expected


METRICS: list[list[float | None]] = [[], [0.5], [0.95], [0.5, 0.95], [None], [1.0, None]]  # of the nodes of each run


@pytest.fixture
def runs(database_address: StoreAddress) -> Iterator[MetadataStore]:
    with MetadataStore.open(database_address("runs")) as opened:
        for index, metrics in enumerate(METRICS):
            facts = {"state": "COMPLETE", "parameters": {"epochs": index} if index % 2 else {}}
            run = opened.context("run", f"r{index}", facts)
            opened.record("Other", "SKIPPED", contexts=[run])
            for number, value in enumerate(metrics):  # of what ran, and of what that made
                execution = opened.start("Make", contexts=[run])
                said = {"metrics": {"auc": value}}
                output = StagedArtifact("T", f"artifacts/N/{index}-{number}/out", "f", 1, said if number else {})
                opened.publish(execution, {"out": [output]}, properties={} if number else said)
        yield opened


def kleene(expression: Expression, values: pandas.DataFrame) -> pandas.Series[bool]:
    """What a filter says of each run, by pandas: true, false or NA, where any of a run's values counts."""
    match expression:
        case ("not", inner):
            return ~kleene(inner, values)
        case ("and", left, right):
            return kleene(left, values) & kleene(right, values)
        case ("or", left, right):
            return kleene(left, values) | kleene(right, values)
        case ("in", name, several):
            parts = [kleene((name, "=", value), values) for value in several]
            return functools.reduce(operator.or_, parts)
    name, sign, wanted = expression
    mine = values[values["name"] == name]
    fits = _COMPARE[sign](mine["value"], wanted).groupby(mine["run"]).any()
    return fits.reindex(range(len(METRICS))).astype("boolean")


_RUN_COMPARISONS = st.one_of(
    st.tuples(st.sampled_from(["metric.auc", "parameter.epochs"]), _SIGNS, st.sampled_from([0.5, 0.95, 1, 3])),
    st.tuples(st.just("in"), st.just("metric.auc"), st.lists(st.sampled_from([0.5, 0.95]), min_size=1, max_size=2)),
)
_RUN_EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    _RUN_COMPARISONS,
    lambda inner: st.one_of(st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=_RUN_EXPRESSIONS)
def test_what_runs_lack_neither_holds_nor_fails(runs: MetadataStore, expression: Expression) -> None:
    """Of the metrics of a run any may fulfil a comparison; a run without them answers none, below `not` either."""
    rows = [(index, "metric.auc", value) for index, several in enumerate(METRICS) for value in several if value]
    rows += [(index, "parameter.epochs", float(index)) for index in range(1, len(METRICS), 2)]
    expected = kleene(expression, pandas.DataFrame(rows, columns=["run", "name", "value"])).fillna(value=False)
    records = runs.find_runs(RecordQuery(text_of(expression), "id")).records
    assert [each.name for each in records] == [f"r{number}" for number in expected.index[expected]]


@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        ("", [70, 60, 50, 40, 30, 20, 10, 0]),
        ("run = 'r1'", [70, 40, 10]),
        ("run = 'r1' and node = 'p.N0'", [40]),
        ("node like '%n0'", [60, 40, 20, 0]),
        ("property.by like 'A%'", [40, 30, 20, 10]),
        ("property.by like 'a\\%'", []),
        ("property.by not like 'a%'", [60, 50]),
        ('property.nested."a.b".c = 7', [50]),
        ("metric.log-loss >= 1", [20]),
        ('metric."log-loss" = 1', [20]),
        ("created > -2d", [70]),
        ("created >= '2026-11-26T12:00:00+00:00' and created < '2026-11-27T12:00+00:00'", [60]),
        ("created > '2026-11-27'", [70]),
        ("size in (10, 20) or size = 30", [30, 20, 10]),
        ("not size in (10, 20) AND size < 50", [40, 30, 0]),
        ("size <> 10 and size == 20", [20]),
        ("uri = 'artifacts/N/3/out'", [30]),
        ("made_from = 'artifacts/N/4/out'", [70, 60, 50]),
        ("led_to = 'artifacts/N/3/out' and size > 0", [20, 10]),
        ("led_to = 'artifacts/N/3/out' or led_to = 'artifacts/N/5/out'", [40, 20, 10, 0]),
    ],
)
def test_fields(store: MetadataStore, where: str, sizes: list[int]) -> None:
    assert [each.size for each in store.find_artifacts(RecordQuery(where)).records] == sizes


def test_executions_are_found_too(store: MetadataStore) -> None:
    def components(where: str) -> list[str]:
        return [each.component for each in store.find_executions(RecordQuery(where, "id")).records]

    assert components("component = 'Make1' and metric.auc > 0.4") == ["Make1"]
    assert components("state = 'FAILED'") == []
    assert components("made_from = 'artifacts/N/0/out'") == ["Make1", "Make0", "Make1"]
    assert components("led_to = 'artifacts/N/1/out' and started > '2026-11-21'") == ["Make1"]
    failed = store.start("Bad")
    store.finish(failed, "FAILED", error="ValueError: boom")
    assert components("state = 'FAILED' and error like '%BOOM%'") == ["Bad"]


@pytest.mark.parametrize(
    "order", ["id", "-id", "size", "-size", "property.span", "-property.span", "created", "metric.auc"]
)
@pytest.mark.parametrize("limit", [1, 3, 8])
def test_pages_give_each_record_once_in_order(store: MetadataStore, order: str, limit: int) -> None:
    records: list[ArtifactRecord] = []
    after: str | None = None
    while True:
        page = store.find_artifacts(RecordQuery("", order, limit, after))
        records += page.records
        after = page.next
        if after is None:
            break
        assert len(page.records) == limit
    assert sorted(each.id for each in records) == sorted(each.id for each in store.artifacts(state=None))
    name = order.removeprefix("-")
    facts = [
        {"id": each.id, "size": each.size, "property": each.properties, "created": each.created_at.timestamp()}
        | {"metric": each.properties.get("metrics", {})}
        for each in records
    ]
    keys = [value_of(each, name) for each in facts]
    numbers = [key for key in keys if isinstance(key, int | float)]
    assert numbers == sorted(numbers, reverse=order.startswith("-"))
    assert all(not isinstance(key, int | float) for key in keys[len(numbers) :])  # those without it are last


def test_what_nothing_can_be_sorted_by_is_no_order(store: MetadataStore) -> None:
    store.start("Nothing")
    for order in ("property.nothing", "-property.nothing"):
        with pytest.raises(InputError, match=r"nothing that fits can be sorted by property\.nothing"):
            store.find_artifacts(RecordQuery("", order))
        assert store.find_artifacts(RecordQuery("id < 0", order)).records == []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("   ", None),
        ("stat = 'x'", r"no field 'stat', at character 1.*\n.*did you mean 'state'"),
        ("state = FAILED", r"a value is wanted, at character 9, 'FAILED'\n.*single quotes"),
        ("state = 3", "a text in quotes is wanted"),
        ("size = '3'", "a number is wanted"),
        ("size > -7d", "a length of time is compared with a time"),
        ("created > 3", "a time is wanted"),
        ("created > 'soon'", "'soon' is not a time"),
        ("created > -999999999d", "it goes back beyond the year 1, at character 11"),
        ("created > -999999999w", "it goes back beyond the year 1, at character 11"),
        ("state = 'x", "a text has no closing ', at character 9"),
        ("state", "is wanted, at its end"),
        ("state = 'a' state = 'b'", "`and` or `or` is wanted, at character 13"),
        ("(state = 'a'", r"`\)` is wanted, at its end"),
        ("state in 'a'", r"`\(` is wanted"),
        ("state in ('a'", r"`,` or `\)` is wanted"),
        ("state not = 'a'", "`in` or `like` is wanted"),
        ("state is 'a'", "`null` is wanted"),
        ("property = 1", "property wants a name after a dot"),
        ("state.x = 'a'", "no field 'state.x'"),
        ("state = 'a'; DROP TABLE artifact", "this is not understood, at character 12"),
        ("state = 'a' -- x", "this is not understood"),
        ('state = "a"', r"this is not understood, at character 9, '\"a\"'\n.*single quotes"),
        ("property.by like 3", "a text in quotes is wanted"),
        (f"property.by like '{'x' * 10_001}'", "a pattern has 10,000 characters at most"),
        ('property."a = 1', "this is not understood"),
        ("made_from > 'x'", "made_from takes ="),
        ("state = 'a\0'", "holds no NUL"),
        ("not " * 200 + "state = 'a'", "nested too deeply"),
        ("(" * 5000 + "state = 'a'" + ")" * 5000, "nested too deeply"),
    ],
)
def test_a_mistake_is_named(store: MetadataStore, where: str, message: str | None) -> None:
    if message is None:
        assert len(store.find_artifacts(RecordQuery(where)).records) == len(PROPERTIES)
        return
    with pytest.raises(InputError, match=message):
        store.find_artifacts(RecordQuery(where))


def test_what_is_named_must_be_there(store: MetadataStore) -> None:
    with pytest.raises(NotFound):
        store.find_artifacts(RecordQuery("made_from = 'nothing'"))
    for query in (
        RecordQuery(order="state x"),
        RecordQuery(order="run"),
        RecordQuery(order=""),
        RecordQuery(limit=0),
        RecordQuery(after="x"),
    ):
        with pytest.raises(InputError):
            store.find_artifacts(query)
    token = store.find_artifacts(RecordQuery(order="size", limit=1)).next
    with pytest.raises(InputError, match="not where a page"):
        store.find_artifacts(RecordQuery(order="-size", after=token))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.text(max_size=60) | st.text("propertymetricstateandornotinlikeis.'\"()<>=!,% 017-dh", max_size=60))
def test_no_text_does_more_than_ask(store: MetadataStore, where: str) -> None:
    before = store.artifacts(state=None)
    with suppress(InputError, NotFound):
        store.find_artifacts(RecordQuery(where))
    assert store.artifacts(state=None) == before


@pytest.mark.parametrize("value", ["'; DROP TABLE artifact; --", "\\", "%", '"', "\u202e", "x" * 5000])
def test_a_value_is_only_a_value(store: MetadataStore, value: str) -> None:
    execution = store.start("Make")
    new = StagedArtifact("T", "artifacts/N/v/out", "f", 1, {"by": value})
    [stored] = store.publish(execution, {"out": [new]})["out"]
    where = f"property.by = '{value.replace(chr(39), chr(39) * 2)}'"
    assert [each.id for each in store.find_artifacts(RecordQuery(where)).records] == [stored.id]


NUMBERS: Final = [0, 1, -1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0.1 + 0.2, 0.3, 1e308, -1e-308, 1e16]


def test_numbers_are_compared_as_floats_are(store: MetadataStore) -> None:
    ids = [store.start("Counted", properties={"number": number}).id for number in NUMBERS]
    for wanted in NUMBERS:
        for sign, compare in _COMPARE.items():
            query = RecordQuery(f"component = 'Counted' and property.number {sign} {wanted!r}", "id")
            expected = [
                each for each, number in zip(ids, NUMBERS, strict=True) if compare(float(number), float(wanted))
            ]
            assert [each.id for each in store.find_executions(query).records] == expected, (sign, wanted)


LETTERS: Final = "aAzZüÜéÉßſKkİıiIσςΣ日🚂_%'\"\\ .\n\u0301"
"""With what comes in two cases in some languages, is put together from two, or means something in patterns or JSON."""


def fits(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern, by Python's expressions, of whose letters A to Z alone have no case."""
    pattern, text = (unicodedata.normalize("NFC", each) for each in (pattern, text))
    parts = {"%": ".*", "_": "."}
    expression = "".join(parts.get(letter, re.escape(letter)) for letter in pattern)
    return re.fullmatch(expression, text, re.DOTALL | re.IGNORECASE | re.ASCII) is not None


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(LETTERS, max_size=6),
    pattern=st.text(LETTERS, max_size=4) | st.text("%_aAüÜ", max_size=4),
    name=st.text(LETTERS, min_size=1, max_size=4),
)
def test_a_text_fits_a_pattern_as_python_says(store: MetadataStore, text: str, pattern: str, name: str) -> None:
    """Whatever letters a text, a pattern and the name of a property have, both databases say the same."""
    execution = store.start("Written", properties={"text": text, name: text})

    def chosen(where: str) -> bool:
        query = RecordQuery(f"id = {execution.id} and {where}")
        return [each.id for each in store.find_executions(query).records] == [execution.id]

    field = f'property."{name.replace(chr(34), chr(34) * 2)}"'
    assert chosen(f"property.text = {quoted(text)}")
    assert chosen(f"{field} = {quoted(text)}")
    assert not chosen(f'property."{name.replace(chr(34), chr(34) * 2)} " is not null')
    for each in ("property.text", field):
        assert chosen(f"{each} like {quoted(pattern)}") == fits(pattern, text)
        lower, upper = (unicodedata.normalize("NFC", value) for value in (text, pattern))
        assert chosen(f"{each} < {quoted(pattern)}") == (lower < upper)


@pytest.mark.postgres
@pytest.mark.slow
def test_a_database_of_another_language_says_the_same(postgres: Server) -> None:
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute(
            "CREATE DATABASE german ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LOCALE 'C' "
            "TEMPLATE template0"
        )
    with MetadataStore.open(postgres.url.replace("/postgres", "/german")) as store:
        words = ["B", "a", "Ä", "ä", "z", "Z"]
        runs = [store.context("run", f"r{number}", {"note": word}) for number, word in enumerate(words)]
        executions = [store.start("Written", properties={"text": word}) for word in words]
        with store._db.read() as tx:
            (row,) = tx.all("SELECT 'a' < 'B' AS sorted, lower('Ä') = 'ä' AS lowered")
        assert row["sorted"], "the database goes by its language"
        for where in ("< 'a'", "like 'Ä'", "like 'z'", "> 'Z'"):
            expected = [word for word in words if _said(word, where)]
            records = store.find_executions(RecordQuery(f"property.text {where}", "id")).records
            assert [words[executions.index(each)] for each in records] == expected
            contexts = store.find_runs(RecordQuery(f"note {where}", "id")).records
            assert [words[runs.index(each)] for each in contexts] == expected


def _said(word: str, where: str) -> bool:
    sign, value = where.split(" ")
    return fits(value[1:-1], word) if sign == "like" else bool(_COMPARE[sign](word, value[1:-1]))


def test_an_index_serves_a_filter(store: MetadataStore) -> None:
    before = [each.id for each in store.find_artifacts(RecordQuery("property.span >= 1")).records]
    for field in ("property.span", "metric.auc", "property.span"):
        store.index_property("artifact", field)
    assert [each.id for each in store.find_artifacts(RecordQuery("property.span >= 1")).records] == before
    for field in ("property", "state", 'property."a b"', "property.x y", "run"):
        with pytest.raises(InputError):
            store.index_property("artifact", field)


def test_the_index_is_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataStore.open(tmp_path / "metadata.db") as store:
        store.index_property("artifact", "property.span")
        seen: list[str] = []
        ask = store._db.all

        def listen(sql: str, **params: Any) -> Any:
            seen.append(sql)
            return ask(sql, **params)

        monkeypatch.setattr(store._db, "all", listen)
        store.find_artifacts(RecordQuery("property.span = 7"))
        plan = ask(f"EXPLAIN QUERY PLAN {seen[-1]}", limit=51, filter0=7.0)
    assert any("USING INDEX artifact_" in row["detail"] for row in plan), json.dumps([row["detail"] for row in plan])
