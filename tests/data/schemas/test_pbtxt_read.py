"""TFX's schema.pbtxt: TFDV's own is read and written alike, what does not fit is named, a wrong one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drivetrain.data import (
    Bool,
    Count,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    SchemaError,
    Values,
    WeightedFeature,
    schema_from_yaml,
    schema_to_yaml,
)
from drivetrain.data.schemas.pbtxt_read import load_pbtxt, schema_from_pbtxt
from drivetrain.data.schemas.pbtxt_write import schema_to_pbtxt
from drivetrain.data.schemas.schema import Semantic, Time
from drivetrain.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

FLIGHTS = json.loads((Path(__file__).parents[2] / "golden" / "flights_schema.json").read_text())


@pytest.mark.parametrize("month", ["all", "month1"])
def test_flights(month: str, tmp_path: Path) -> None:
    """What TFDV wrote comes back to the byte, also by way of schema.yaml."""
    path = tmp_path / "schema.pbtxt"
    path.write_text(FLIGHTS[month], "utf-8-sig")  # some editors begin a file with a byte order mark
    schema, notes = load_pbtxt(path)
    assert notes == ()
    assert schema_to_pbtxt(schema) == (FLIGHTS[month], ())
    assert schema_to_pbtxt(schema_from_yaml(schema_to_yaml(schema))).text == FLIGHTS[month]
    carrier = schema.feature("carrier")
    assert carrier is not None
    assert (carrier.type, carrier.presence, carrier.shape) == ("string", Presence(1.0, 1), (1,))
    assert isinstance(carrier.domain, Values)
    assert "UA" in carrier.domain.values


FULL = """
feature { name: "label" type: INT bool_domain {} not_in_environment: "SERVING" presence { min_fraction: 1 } shape {} }
feature { name: "age" type: INT int_domain { min: 0 max: 120 } value_counts { value_count { min: 1 } value_count {} } }
feature { name: "fare" type: FLOAT float_domain { min: -inf max: 99.5 disallow_nan: true } value_count { max: 3 } }
feature { name: "code" type: BYTES int_domain { max: 9 } unique_constraints { min: 2 max: 5 } lifecycle_stage: BETA }
feature { name: "city" type: BYTES domain: "d" distribution_constraints { min_domain_mass: 0.9 } in_environment: "X" }
feature { name: "flag" type: BYTES bool_domain { true_value: "y" false_value: "n" } deprecated: true }
string_domain { name: "d" value: "Oslo" value: "Bergen" }
default_environment: "TRAINING" default_environment: "SERVING"
dataset_constraints {
  min_examples_count: 10 max_examples_count: 20 num_examples_drift_comparator { min_fraction_threshold: 0.5 }
  num_examples_version_comparator { min_fraction_threshold: 0.9 max_fraction_threshold: 1.1 }
}
"""


def test_every_field() -> None:
    schema, notes = schema_from_pbtxt(FULL)
    assert notes == ()
    assert schema == Schema(
        features=(
            Feature("label", "int", Presence(1.0), Bool(), shape=(), not_in_environments=("SERVING",)),
            Feature("age", "int", domain=Range(0, 120), value_counts=(Count(1), Count())),
            Feature("fare", "float", domain=Range(None, 99.5, disallow_nan=True), value_counts=(Count(None, 3),)),
            Feature("code", "string", domain=Range(None, 9, parse="int"), value_counts=(Count(),), unique=Count(2, 5),
                    stage="BETA"),
            Feature("city", "string", domain=Values(("Oslo", "Bergen"), 0.9), value_counts=(Count(),),
                    in_environments=("X",)),
            Feature("flag", "string", domain=Bool("y", "n"), value_counts=(Count(),), stage="DEPRECATED"),
        ),
        min_rows=10,
        max_rows=20,
        environments=("TRAINING", "SERVING"),
        rows_drift=Ratio(0.5),
        rows_version=Ratio(0.9, 1.1),
    )  # fmt: skip
    assert schema_from_yaml(schema_to_yaml(schema)) == schema
    text, notes = schema_to_pbtxt(schema)
    assert notes == ()
    assert schema_from_pbtxt(text).schema == schema


def test_notes() -> None:
    """What cannot be taken over is named with its line."""
    text = """feature {
      name: "x" type: BYTES image_domain { max_image_byte_size: 3 }
      annotation { tag: "pii" extra_metadata { [type.googleapis.com/a.B] { c: 1 } } }
      shape { dim { size: 2 name: "pair" } }
    }
    feature { name: "n" type: INT int_domain { is_categorical: true } group_presence { required: true } }
    feature { name: "b" type: INT bool_domain { true_value: "yes" } sequence_metadata { joint_group: "g" } }
    string_domain { name: "spare" }
    sparse_feature { name: "s" }
    weighted_feature { name: "w" feature { step: "a" step: "b" } weight_feature { step: "x" } }
    tensor_representation_group { key: "" value { } }
    """
    schema, notes = schema_from_pbtxt(text, "tfx/schema.pbtxt")
    assert [feature.name for feature in schema.features] == ["x", "n", "b"]
    assert [feature.domain for feature in schema.features] == [Semantic("image", max_bytes=3), None, Bool()]
    assert notes == (
        "tfx/schema.pbtxt:3: annotation of feature 'x' is not taken over",
        "tfx/schema.pbtxt:4: the name of a dimension of feature 'x' is not taken over",
        "tfx/schema.pbtxt:6: is_categorical of feature 'n' is not taken over",
        "tfx/schema.pbtxt:6: group_presence of feature 'n' is not taken over",
        "tfx/schema.pbtxt:7: true_value and false_value mean nothing for feature 'b' and are left out",
        "tfx/schema.pbtxt:7: sequence_metadata of feature 'b' is not taken over",
        "tfx/schema.pbtxt:8: the domain 'spare' is of no feature and is not taken over",
        "tfx/schema.pbtxt:9: sparse_feature[0] is not taken over",
        "tfx/schema.pbtxt:10: weighted feature 'w' is of fields of a struct and is not taken over",
        "tfx/schema.pbtxt:11: tensor_representation_group[0] is not taken over",
    )


# As protobuf prints it with tensorflow_metadata 1.16.1.
WEIGHTED = """feature {
  name: "v"
  type: TYPE_UNKNOWN
}
feature {
  name: "w"
  type: TYPE_UNKNOWN
}
weighted_feature {
  name: "vw"
  feature {
    step: "v"
  }
  weight_feature {
    step: "w"
  }
  lifecycle_stage: BETA
}
"""
SPARSE = """sparse_feature {
  name: "vw"
  deprecated: true
  presence {
    min_count: 1
  }
  dense_shape {
    dim {
      size: 2
    }
  }
  index_feature {
    name: "v"
  }
  lifecycle_stage: ALPHA
  is_sorted: true
  value_feature {
    name: "w"
  }
  type: INT
}
"""


def test_weighted_features_go_both_ways() -> None:
    schema, notes = schema_from_pbtxt(WEIGHTED)
    assert notes == ()
    assert schema.weighted == (WeightedFeature("vw", "v", "w", "BETA"),)
    assert schema_to_pbtxt(schema).text == WEIGHTED
    assert schema_from_yaml(schema_to_yaml(schema)) == schema


def test_weighted_features_that_are_named_as_sparse_ones() -> None:
    schema, notes = schema_from_pbtxt(SPARSE + WEIGHTED)  # the sparse one is deprecated
    assert notes == ("schema.pbtxt:1: sparse_feature[0] is not taken over",)
    assert len(schema.weighted) == 1
    sparse = SPARSE.replace("  deprecated: true\n", "").replace("ALPHA", "BETA")
    with pytest.raises(SchemaError, match="is named as a sparse feature is") as caught:
        schema_from_pbtxt(WEIGHTED + sparse)
    assert caught.value.problems[0].anomaly == "WEIGHTED_FEATURE_NAME_COLLISION"
    assert caught.value.where == "schema.pbtxt:9"


def test_times_and_meanings_go_both_ways() -> None:
    text = """feature {
  name: "day"
  type: BYTES
  time_domain {
    string_format: "%d-%B-%Y"
  }
}
feature {
  name: "at"
  type: INT
  time_domain {
    integer_format: UNIX_MILLISECONDS
  }
}
feature {
  name: "review"
  type: BYTES
  natural_language_domain {
  }
}
"""
    schema, notes = schema_from_pbtxt(text)
    assert not notes
    assert [one.domain for one in schema.features] == [
        Time("%d-%B-%Y", 0.8),
        Time("UNIX_MILLISECONDS", 0.8),
        Semantic("natural_language"),
    ]
    again = schema_from_yaml(schema_to_yaml(schema))
    assert again == schema
    assert schema_to_pbtxt(again).text == text
    untyped = 'feature { name: "x" type: TYPE_UNKNOWN time_domain { string_format: "%Y" } }'
    assert schema_from_pbtxt(untyped).schema.features[0].domain == Time("%Y", 0.8)
    for odd in ('type: INT time_domain { string_format: "%Y" }', 'type: BYTES time_domain { string_format: "%Q" }'):
        schema, notes = schema_from_pbtxt(f'feature {{ name: "x" {odd} }}')
        assert schema.features[0].domain is None
        assert "means nothing here" in notes[0]


@pytest.mark.parametrize(
    ("text", "anomalies"),
    [
        ('feature { name: "x" type: INT presence { min_fraction: 1.5 } }', ["INVALID_SCHEMA_SPECIFICATION"]),
        ('feature { name: "x" type: INT presence { min_fraction: -1 } }', ["INVALID_SCHEMA_SPECIFICATION"]),
        ('feature { name: "x" type: INT value_count { min: 3 max: 1 } }', ["INVALID_SCHEMA_SPECIFICATION"]),
        ('feature { name: "x" type: INT value_counts { value_count { min: -3 } } }', ["INVALID_SCHEMA_SPECIFICATION"]),
        (
            'feature { name: "x" type: INT shape { dim { size: 0 } dim { size: -1 } } }',
            ["INVALID_SCHEMA_SPECIFICATION"],
        ),
        ('feature { name: "x" type: INT distribution_constraints { } }', ["INVALID_SCHEMA_SPECIFICATION"]),
        (
            'feature { name: "x" type: INT bool_domain {} distribution_constraints { } }',
            ["INVALID_SCHEMA_SPECIFICATION"],
        ),
        ('feature { name: "x" type: BYTES domain: "d" }', ["INVALID_DOMAIN_SPECIFICATION"]),
        ('feature { name: "x" type: BYTES string_domain { value: "a" value: "a" } }', ["INVALID_DOMAIN_SPECIFICATION"]),
        (
            'feature { name: "x" type: BYTES bool_domain { true_value: "a" false_value: "a" } }',
            ["INVALID_DOMAIN_SPECIFICATION"],
        ),
        ('feature { name: "x" type: BYTES bool_domain { } }', ["BOOL_TYPE_INVALID_CONFIG"]),
        ('feature { name: "x" type: INT string_domain { value: "a" } }', ["DOMAIN_INVALID_FOR_TYPE"]),
        ('feature { name: "x" type: FLOAT int_domain { } }', ["DOMAIN_INVALID_FOR_TYPE"]),
        ('feature { name: "x" type: FLOAT image_domain { } }', ["DOMAIN_INVALID_FOR_TYPE"]),
        ('feature { name: "x" type: INT struct_domain { } }', ["DOMAIN_INVALID_FOR_TYPE"]),
        ("feature { type: INT }", ["FEATURE_MISSING_NAME"]),
        ('feature { name: "x" }', ["FEATURE_MISSING_TYPE"]),
        ('feature { name: "x" string_domain { } }', ["FEATURE_MISSING_TYPE"]),
        ('feature { name: "x" lifecycle_stage: ALPHA string_domain { } }', []),
        (
            'feature { name: "x" type: INT presence { min_fraction: 2 min_count: -1 } } feature { name: "y" }',
            ["INVALID_SCHEMA_SPECIFICATION", "INVALID_SCHEMA_SPECIFICATION", "FEATURE_MISSING_TYPE"],
        ),
    ],
)
def test_self_checks(text: str, anomalies: list[str]) -> None:
    """TFDV's names (feature_util.cc and schema.cc say when); all of them at once, the first in the message."""
    if not anomalies:
        schema_from_pbtxt(text)
        return
    with pytest.raises(SchemaError) as caught:
        schema_from_pbtxt("\n" + text, "s.pbtxt")
    assert [problem.anomaly for problem in caught.value.problems] == anomalies
    assert caught.value.where == "s.pbtxt:2"
    assert anomalies[0] in caught.value.message


def test_domains_at_the_top() -> None:
    text = 'int_domain { name: "d" max: 3 } feature { name: "x" type: INT domain: "d" }'
    with pytest.raises(SchemaError, match="DOMAIN_INVALID_FOR_TYPE"):
        schema_from_pbtxt(text)  # as TFDV: `domain` is for texts
    with pytest.raises(SchemaError, match="two domains are named 'd'"):
        schema_from_pbtxt('string_domain { name: "d" } string_domain { name: "d" }')
    with pytest.raises(SchemaError, match="'x' appears twice"):
        schema_from_pbtxt('feature { name: "x" type: INT } feature { name: "x" type: INT }')


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_pbtxt(tmp_path / "none.pbtxt")


def test_written() -> None:
    """Our own words in TFDV's, and what TFDV has no words for."""
    schema = Schema(
        (
            Feature("a", "int", Presence(1.0, 1)),
            Feature("b", "bool"),
            Feature("t", "timestamp"),
            Feature("f", "float", domain=Range(0.1, 16777217.0), severity={"FLOAT_TYPE_BIG_FLOAT": "INFO"}),
            Feature("u", "int", unique=Count(1)),
            Feature("l", "list"),
            Feature("i", "int", domain=Range(-0.5, 2.5)),
        ),
        max_rows=5,
    )
    text, notes = schema_to_pbtxt(schema)
    one = "value_count { min: 1 max: 1 }"
    assert " ".join(text.split()) == " ".join(
        f"""feature {{ name: "a" type: INT presence {{ min_fraction: 1.0 min_count: 1 }}
        shape {{ dim {{ size: 1 }} }} }}
        feature {{ name: "b" {one} type: INT bool_domain {{ }} }}
        feature {{ name: "t" {one} type: BYTES }}
        feature {{ name: "f" {one} type: FLOAT float_domain {{ min: 0.1 max: 16777218.0 }} }}
        feature {{ name: "u" {one} type: INT unique_constraints {{ min: 1 }} }}
        feature {{ name: "l" type: TYPE_UNKNOWN }}
        feature {{ name: "i" {one} type: INT int_domain {{ min: 0 max: 2 }} }}
        dataset_constraints {{ max_examples_count: 5 }}""".split()
    )
    assert notes == (
        "t is timestamp, which TFDV does not have; it is written as BYTES, as TFDV reads it from CSV",
        "max 16777217.0 of f has more digits than TFDV's 32 bits keep",
        "TFDV counts distinct values of text only, not those of u",
        "l is list, which TFDV does not have; it is written as of an unknown type",
        "severities are not part of TFDV's schema; give them to its validation config",
        "TFDV looks at the largest number of rows only where a smallest is given too",
    )


names = st.text(min_size=1, max_size=8)
counts = st.builds(
    lambda low, more: Count(low, None if more is None else (low or 0) + more),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 5),
)


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    kind = draw(st.sampled_from(["int", "float", "string"]))
    domains = {
        "int": st.none() | st.just(Bool()) | st.builds(Range, st.integers(-9, 0), st.none() | st.integers(1, 9)),
        "float": st.none()
        | st.builds(Range, st.floats(-1, 0, width=16), st.none(), st.booleans(), st.just(value=True)),
        "string": st.none()
        | st.builds(Values, st.lists(st.text(max_size=5), unique=True).map(tuple), st.sampled_from([1.0, 0.9]))
        | st.builds(Range, st.integers(-9, 0), parse=st.just("int")),
    }
    return Feature(
        name,
        kind,
        draw(st.builds(Presence, st.none() | st.floats(0, 1), st.none() | st.integers(0, 9))),
        draw(domains[kind]),
        value_counts=tuple(draw(st.lists(counts, min_size=1, max_size=2))),
        unique=draw(st.none() | counts),
        in_environments=tuple(draw(st.lists(st.sampled_from("AB"), unique=True))),
        not_in_environments=tuple(draw(st.lists(st.sampled_from("CD"), unique=True))),
        stage=draw(st.sampled_from(["", "BETA", "ALPHA"])),
        request_log=draw(st.sampled_from(["", "deny", "hash"])),
    )


def test_a_rule_for_the_request_log_goes_both_ways() -> None:
    one_value = (Count(1, 1),)
    schema = Schema((
        Feature("id", "int", value_counts=one_value, request_log="deny"),
        Feature("city", "string", value_counts=one_value, request_log="hash"),
    ))  # fmt: skip
    text, notes = schema_to_pbtxt(schema)
    assert notes == ()
    assert 'tag: "drivetrain:request_log:deny"' in text
    assert schema_from_pbtxt(text) == (schema, ())
    assert schema_from_yaml(schema_to_yaml(schema)) == schema
    both = text.replace('tag: "drivetrain:request_log:deny"', 'tag: ["pii", "drivetrain:request_log:deny"]')
    read, notes = schema_from_pbtxt(both)
    assert (read, len(notes)) == (schema, 1)  # what else it says is not taken over, and the rule is
    for wrong in (text.replace("log:deny", "log:mask"), schema_to_yaml(schema).replace("log: deny", "log: mask")):
        with pytest.raises(InputError, match="there is no rule 'mask' for the request log"):
            schema_from_pbtxt(wrong) if "feature {" in wrong else schema_from_yaml(wrong)
    with pytest.raises(InputError, match="not for fields of a struct"):
        Schema((Feature("s", "struct", fields=(Feature("id", "int", request_log="deny"),)),))


@pytest.mark.slow
@given(st.data(), st.lists(names, unique=True, max_size=4))
def test_round_trip(data: st.DataObject, labels: list[str]) -> None:
    schema = Schema(tuple(data.draw(features(name)) for name in labels), environments=("T", "S"))
    assert schema_from_pbtxt(schema_to_pbtxt(schema).text).schema == schema
    assert schema_from_yaml(schema_to_yaml(schema)) == schema


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_what_a_range_lets_in_it_lets_in_after_the_way_through_tfdv(low: float, high: float) -> None:
    """Its floats have 32 bits: rounded outwards, and once."""
    feature = Feature("x", "float", domain=Range(min(low, high), max(low, high)))
    text, _ = schema_to_pbtxt(Schema((feature,)))
    (read,) = schema_from_pbtxt(text).schema.features
    found = read.domain or Range()
    assert isinstance(found, Range)
    assert found.min is None or found.min <= min(low, high)
    assert found.max is None or found.max >= max(low, high)
    assert schema_to_pbtxt(Schema((read,))).text == text


def test_integers_beyond_64_bits_are_left_out() -> None:
    text, notes = schema_to_pbtxt(Schema((Feature("x", "int", domain=Range(-(2**70), 2**63)),)))
    assert "domain" not in text
    assert len(notes) == 2
    assert "beyond TFDV's 64 bits" in notes[0]


@pytest.mark.parametrize("number", [".", ".f", "1.2.3", "1e", ".inf", "1_0"])
def test_what_is_not_a_number_is_said_with_its_line(number: str) -> None:
    text = f'feature {{ name: "a" type: FLOAT float_domain {{ max: {number} }} }}'
    with pytest.raises(InputError, match=r"schema\.pbtxt:1"):
        schema_from_pbtxt(text)
