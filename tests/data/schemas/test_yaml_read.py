"""schema.yaml: round trips, and errors that name the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.data.schemas.schema import (
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Schema,
    Semantic,
    Severity,
    Time,
    Values,
)
from drivetrain.data.schemas.weighted_feature import WeightedFeature
from drivetrain.data.schemas.yaml_read import load_schema, schema_from_yaml
from drivetrain.data.schemas.yaml_write import schema_to_yaml
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "format: drivetrain.schema/1\nfeatures:\n"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.lists(
    texts | st.sampled_from(["NO", "1", "~", "null", "a.b", 'q"u', "é: [", "😀", "x\ny", "#"]), unique=True, max_size=5
)
presences = st.builds(Presence, st.none() | st.floats(0, 1), st.none() | st.integers(0, 10**9))
values = st.lists(texts, unique=True, max_size=30).map(tuple)
numbers = st.integers(-(2**60), 2**60) | st.floats(-1e300, 1e300)


def is_range(ends: tuple[float | None, float | None]) -> bool:
    low, high = ends
    return low is None or high is None or low <= high


ranges: st.SearchStrategy[tuple[float | None, float | None]] = st.tuples(st.none() | numbers, st.none() | numbers)
ranges = ranges.filter(is_range)


# Strategies are made here and not as they are drawn from: hypothesis looks through each of them once.
pairs = st.lists(texts, unique=True, min_size=2, max_size=2).map(lambda two: Bool(*two))
meanings: st.SearchStrategy[Domain] = st.sampled_from(
    [Time("%Y-%m-%d %H:%M"), Time("%Y", 0.5, Count(1990, None)), Time("%d: %B, '%y' #", 0.5), Semantic("image")]
)
domains_of_texts = st.none() | st.builds(Values, values, st.floats(0.01, 1)) | pairs | meanings
domains_of_numbers = st.none() | st.just(Bool()) | ranges.map(lambda p: Range(p[0], p[1], True))
kinds = st.sampled_from(["string", "int", "float", "any", "timestamp"])
severities: st.SearchStrategy[dict[str, Severity]] = st.sampled_from([{}, {"UNEXPECTED_DATA_TYPE": "INFO"}])


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    kind = draw(kinds)
    domain: Domain | None = None
    if kind == "string":
        domain = draw(domains_of_texts)
    elif kind in ("int", "float"):
        domain = draw(domains_of_numbers)
    return Feature(name, kind, draw(presences), domain, draw(severities), evidence=draw(texts))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    columns = draw(names)
    pairs = draw(names) if columns else []
    column = st.sampled_from(columns or [""])
    return Schema(
        tuple(draw(features(name)) for name in columns),
        min_rows=draw(st.none() | st.integers(0, 10)),
        max_rows=draw(st.none() | st.integers(10, 20)),
        severity=draw(st.sampled_from([{}, {"SCHEMA_NEW_COLUMN": "WARNING"}])),
        weighted=tuple(
            WeightedFeature(name, draw(column), draw(column), draw(st.sampled_from(["", "BETA", "ALPHA"])))
            for name in pairs
            if name and name not in columns
        ),
    )


@settings(deadline=None, max_examples=200)
@given(schemas())
def test_round_trip(schema: Schema) -> None:
    text = schema_to_yaml(schema)
    again = schema_from_yaml(text)
    assert again == schema
    assert schema_from_yaml(schema_to_yaml(again)) == schema


def test_it_is_readable() -> None:
    schema = Schema((Feature("carrier", "string", Presence(1.0, 1), Values(("9E", "NO", "a b")), evidence="all rows"),))
    assert schema_to_yaml(schema).splitlines()[1:] == [
        "format: drivetrain.schema/1",
        "features:",
        "  carrier:  # all rows",
        "    type: string",
        "    presence: {min_fraction: 1.0, min_count: 1}",
        "    domain:",
        '      values: [9E, NO, "a b"]',
    ]


def test_evidence_stands_behind_its_line() -> None:
    evidence = "domain: two\nwere seen\npresence: all rows\nskew: nothing"
    lines = schema_to_yaml(Schema((Feature("x", "string", Presence(1.0), Values(("a",)), evidence=evidence),)))
    assert lines.splitlines()[3:] == [
        "  x:  # were seen, skew: nothing",
        "    type: string",
        "    presence: {min_fraction: 1.0}  # all rows",
        "    domain:  # two",
        "      values: [a]",
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "empty"),
        ("features: {}", 1, "not a schema of the format"),
        ("format: drivetrain.schema/1\n", 1, "no features"),
        (HEAD + "  x: {typo: int}", 3, "feature 'x': unknown key 'typo'"),
        (HEAD + "  x:\n    type: integer", 4, "feature 'x': there is no type 'integer'"),
        (HEAD + "  x:\n    type: int\n    domain: {values: [a]}", 4, "feature 'x': a list of"),
        (HEAD + "  x: {type: int}\n  x: {type: int}", 4, "'x' appears twice"),
        (HEAD + "  x: {presence: {min_fraction: lots}}", 3, "a number is wanted"),
        (HEAD + "  x: {presence: {min_count: 1.5}}", 3, "a whole number"),
        (HEAD + "  x: {presence: {min_fraction: 2}}", 3, "is not a share"),
        (HEAD + "  x: {severity: {UNEXPECTED_DATA_TYPE: BAD}}", 3, "no severity 'BAD'"),
        (HEAD + "  x: {severity: {TYPO: INFO}}", 3, "no anomaly 'TYPO'"),
        (HEAD + "  x: {type: int, domain: {range: {min: 2, max: 1}}}", 3, "is not a range"),
        (HEAD + "  x: {stage: OLD}", 3, "no stage 'OLD'"),
        (HEAD + "  x: {shape: [0]}", 3, "a dimension of 0 values"),
        (HEAD + "  x: {shape: [1], value_count: {min: 1}}", 3, "exclude each other"),
        (HEAD + "  x: {value_count: [{}, {min: 2, max: 1}]}", 3, "value_count of level 1: 2 to 1 is not a range"),
        (HEAD + "  x: {unique: {most: 3}}", 3, "unknown key 'most'"),
        (HEAD + "  x: {in_environments: [A], not_in_environments: [A]}", 3, "in and not in environment 'A'"),
        (HEAD + "  x: {type: int, domain: {range: {parse: int}}}", 3, "only text can be parsed"),
        (HEAD + "  x: {type: string, domain: {range: {parse: date}}}", 3, "parsed as int or float"),
        ("format: drivetrain.schema/1\nrows: {drift: {min: 2, max: 1}}\nfeatures: {}", 1, "rows: 2.* to 1.* is not"),
        (HEAD + '  x: {type: string, domain: {time: {format: "%Q"}}}', 3, "%Q is not a directive"),
        (HEAD + '  x: {type: int, domain: {time: {format: "%Y"}}}', 3, "is for string, not int"),
        (HEAD + "  x: {type: int, domain: {time: {min_mass: 0.5}}}", 3, "a time has a format"),
        (HEAD + '  x: {type: string, domain: {time: {format: "%y", years: {min: 1990}}}}', 3, "has no %Y"),
        (HEAD + '  x: {type: string, domain: {time: {format: "%Y", years: {min: 3, max: 2}}}}', 3, "from 3 to 2"),
        (HEAD + "  x: {type: int, domain: natural_language}", 3, "natural_language is for text"),
        (HEAD + "  x: {type: int}\nweighted_features:\n  p: {value: x, weight: y}", 5, "weights are of 'y'"),
        (HEAD + "  x: {type: int}\nweighted_features: {x: {value: x, weight: x}}", 4, "is named as a feature is"),
        (HEAD + "  x: {type: int}\nweighted_features: {p: {value: x, w: x}}", 4, "unknown key 'w'"),
        (HEAD + "  x: {type: int}\nweighted_features: [x]", 4, "weighted_features must be"),
        (HEAD + "  x: [1", 3, "not YAML"),
        (HEAD + "  - x", 3, "features must be"),
        ("format: drivetrain.schema/1\nrows: {min: 9, max: 1}\nfeatures: {}", 1, "is not a range"),
        ("a: \x00", None, "not YAML"),
        (HEAD + "\tx: {type: int}", 3, "not YAML"),
        (HEAD + "  x: " + "[" * 5000, None, "nested too deeply"),
        (HEAD + "  x: " + "[" * 200_000 + "]" * 200_000, None, "nested too deeply"),
        (HEAD + "  x: &x\n    type: *y", 4, "undefined alias 'y'"),
        (HEAD + f"  x: {{presence: {{min_count: {'9' * 5000}}}}}", 3, "a number is wanted"),
        (HEAD + f"  x: {{type: int, domain: {{range: {{max: {'9' * 400}}}}}}}", 3, "a number is wanted"),
        (HEAD + "  x: {type: int, domain: {range: {min: 2020-13-45}}}", 3, "a number is wanted"),
        (HEAD + '  x: {type: int, domain: {range: {min: "1"}}}', 3, "a number is wanted"),
        (HEAD + "  x: {type: int, domain: {range: {min: .nan}}}", 3, "a number is wanted"),
        (HEAD + '  "x\\ud800": {type: int}', 3, "half a character"),
        (HEAD + "  x: &x {type: int}\n  y: {<<: *x}", 4, "unknown key '<<'"),
        (HEAD + "  x: !!python/object/apply:os.system [id]", 3, "must be `key: value`"),
    ],
)  # fmt: skip
def test_errors_name_the_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        schema_from_yaml(text, "my.yaml")
    if line is not None:
        assert caught.value.where == f"my.yaml:{line}"


@pytest.mark.parametrize(("said", "number"), [("1e5", 1e5), ("-2.5E+3", -2500.0), ("010", 10), (".5", 0.5), ("+7", 7)])
def test_numbers_are_those_of_yaml_1_2(said: str, number: float) -> None:
    (found,) = schema_from_yaml(HEAD + f"  x: {{type: float, domain: {{range: {{min: {said}}}}}}}").features
    assert found.domain == Range(number)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_schema(tmp_path / "none.yaml")


def test_the_page_says_all_that_is_demanded() -> None:
    schema = Schema(
        (
            Feature("x", "int", shape=(2,), stage="BETA", unique=Count(1, 3), request_log="hash"),
            Feature(
                "y", "int", value_counts=(Count(), Count(2, 2)), in_environments=("A",), not_in_environments=("B",)
            ),
        )
    )
    page = schema.to_html()
    for text in (
        "BETA",
        "shape [2]",
        "distinct: 1 to 3",
        "request log: hash",
        "per row: 0 or more",
        "per row: 2<",
        "in A<",
        "not in B",
    ):
        assert text in page, text
