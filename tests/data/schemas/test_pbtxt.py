"""The text format: what protobuf reads and writes, we read and write; errors name line and column."""

from __future__ import annotations

import contextlib
import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from drivetrain.data.schemas.pbtxt import dump, parse
from drivetrain.data.schemas.schema_proto import SCHEMA_PROTO
from drivetrain.errors import InputError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GOLDEN = Path(__file__).parents[2] / "golden"
FLIGHTS = json.loads((GOLDEN / "flights_schema.json").read_text())
SCALARS = {"string": 9, "bool": 8, "int64": 3, "float": 2, "double": 1}  # FieldDescriptorProto.Type


@functools.cache
def message_class() -> Any:  # a class that protobuf makes
    """protobuf's own class for `Schema`, from our tables without what is opaque."""
    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = pb2.FileDescriptorProto(name="schema.proto", package="t", syntax="proto2")
    for name, values in SCHEMA_PROTO.enums.items():
        enum = file.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=f"{value}", number=number)
    for name, fields in SCHEMA_PROTO.messages.items():
        message = file.message_type.add(name=name)
        oneofs: list[str] = []
        for label, spec in fields.items():
            if spec.kind == "opaque":
                continue
            item = message.field.add(name=label, number=spec.number, label=3 if spec.repeated else 1)
            if spec.kind in SCALARS:
                item.type = SCALARS[spec.kind]
            else:
                item.type = 11 if spec.kind in SCHEMA_PROTO.messages else 14
                item.type_name = f".t.{spec.kind}"
            if spec.oneof:
                if spec.oneof not in oneofs:
                    oneofs.append(spec.oneof)
                    message.oneof_decl.add(name=spec.oneof)
                item.oneof_index = oneofs.index(spec.oneof)
    pool = pytest.importorskip("google.protobuf.descriptor_pool").DescriptorPool()
    pool.Add(file)
    factory = pytest.importorskip("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("t.Schema"))


def values(message: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any value of a message."""

    @st.composite
    def draw_message(draw: st.DrawFn) -> dict[str, Any]:
        table = SCHEMA_PROTO.messages[message]
        chosen = draw(st.lists(st.sampled_from([n for n, f in table.items() if f.kind != "opaque"]), max_size=5))
        seen: set[str] = set()
        found: dict[str, Any] = {}
        for name in chosen:
            spec = table[name]
            if name in found or (spec.oneof and spec.oneof in seen):
                continue
            seen.add(spec.oneof)
            one = scalar(spec.kind)
            found[name] = draw(st.lists(one, min_size=1, max_size=3) if spec.repeated else one)
        return found

    return draw_message()


def scalar(kind: str) -> st.SearchStrategy[Any]:
    simple: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(st.characters(codec="utf-8")),
        "bool": st.booleans(),
        "int64": st.integers(-(2**63), 2**63 - 1),
        "double": st.floats(allow_nan=False),
        "float": st.floats(width=32, allow_nan=False, allow_subnormal=False),
    }
    if kind in simple:
        return simple[kind]
    if kind in SCHEMA_PROTO.enums:
        return st.sampled_from(list(SCHEMA_PROTO.enums[kind]))
    return values(kind)


def read(text: str, message: str = "Schema") -> dict[str, Any]:
    return parse(text, SCHEMA_PROTO, message, "s.pbtxt").value


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(values("Schema"))
def test_as_protobuf(value: dict[str, Any]) -> None:
    text_format = pytest.importorskip("google.protobuf.text_format")
    text = dump(value, SCHEMA_PROTO, "Schema")
    theirs = text_format.Parse(text, message_class()())
    for spelled in (
        text_format.MessageToString(theirs),
        text_format.MessageToString(theirs, as_one_line=True, as_utf8=True, use_short_repeated_primitives=True),
        text_format.MessageToString(theirs, pointy_brackets=True, use_index_order=True),
    ):
        again = read(spelled)
        assert text_format.Parse(dump(again, SCHEMA_PROTO, "Schema"), message_class()()) == theirs


@settings(max_examples=200, deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_single_precision(number: float) -> None:
    numpy = pytest.importorskip("numpy")
    text = dump({"min": number}, SCHEMA_PROTO, "FloatDomain")
    assert numpy.float32(read(text, "FloatDomain")["min"]) == numpy.float32(number)


@pytest.mark.parametrize("month", ["all", "month1"])
def test_flights(month: str) -> None:
    value = read(FLIGHTS[month])
    assert dump(value, SCHEMA_PROTO, "Schema") == FLIGHTS[month]
    theirs = json.loads(json.dumps(FLIGHTS[f"{month}_json"]), parse_int=str)

    def plain(item: Any) -> Any:  # int64 are texts in protobuf's JSON
        if isinstance(item, dict):
            return {key: plain(part) for key, part in item.items()}
        if isinstance(item, list):
            return [plain(part) for part in item]
        return str(item) if isinstance(item, int) and not isinstance(item, bool) else item

    assert plain(value) == theirs


def test_spellings() -> None:
    """Commas, semicolons, comments, < >, lists, several pieces of a text, every escape, all numbers."""
    text = r"""
    # what it is
    feature: < name: 'a' "b" # both
      '\x41\101\n\u00e9\U0001F600\"\'\?' ; type: 2, in_environment: ["T", "S"] in_environment: "U" >
    feature [{ name: "c" presence { min_fraction: 1f min_count: 0x10 } }, { int_domain { min: -017 max: - 5 } }]
    default_environment: []
    float_domain { min: -inf max: 1.5e3 disallow_nan: t disallow_inf: 0 }
    float_domain { min: nan max: 0.1 }
    """
    value = read(text)
    assert value["feature"][0] == {"name": "abAA\né😀\"'?", "type": "INT", "in_environment": ["T", "S", "U"]}
    assert value["feature"][1] == {"name": "c", "presence": {"min_fraction": 1.0, "min_count": 16}}
    assert value["feature"][2] == {"int_domain": {"min": -15, "max": -5}}
    assert value["default_environment"] == []
    assert value["float_domain"][0] == {"min": -math.inf, "max": 1500.0, "disallow_nan": True, "disallow_inf": False}
    assert math.isnan(value["float_domain"][1]["min"])
    assert value["float_domain"][1]["max"] == 0.1


def test_opaque() -> None:
    text = 'feature { name: "x" url_domain { a: "}" b <c: [1, {}]> [type.googleapis.com/x] { } } type: BYTES }'
    parsed = parse(text, SCHEMA_PROTO, "Schema")
    assert parsed.value == {"feature": [{"name": "x", "url_domain": {}, "type": "BYTES"}]}
    assert [(item.path, item.line) for item in parsed.opaque] == [("feature[0].url_domain", 1)]
    assert parsed.lines["feature[0].type"] == 1


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ('feature {\n  nam: "x" }', "2:3", "no field 'nam'"),
        ('feature { name: "x" name: "y" }', "1:21", "appears twice"),
        ("feature { shape { } value_count { } }", "1:21", "exclude each other"),
        ("feature { type: STRING }", "1:17", "FeatureType has no value 'STRING'"),
        ("feature { presence { min_count: 1.5 } }", "1:33", "a whole number of 64 bits"),
        ("feature { presence { min_count: 9223372036854775808 } }", "1:33", "a whole number of 64 bits"),
        ("feature { presence { min_fraction: x } }", "1:36", "a number"),
        ("feature { name: x }", "1:17", "a text in quotes"),
        ('feature { name: "x\ny" }', "1:17", "not closed"),
        ('feature { name: "\\q" }', "1:18", "no escape"),
        ('feature { name: "\\xff" }', "1:17", "not UTF-8"),
        ("feature { name }", "1:16", "a colon"),
        ("feature {", "1:10", "a field of Feature or }"),
        ("feature { }}", "1:12", "a field of Schema"),
        ("feature { url_domain { < } }", "1:26", "unexpected '}'"),
        ("feature { url_domain {", "1:22", "never closed"),
        ("feature: 3", "1:10", "{ is wanted"),
        ("feature [{}", "1:12", "a comma or ]"),
        ("float_domain { min: 3x }", "1:21", "is not a number"),
        ("float_domain { min: 0x3 }", "1:21", "a number is wanted"),
        ("feature { deprecated: -true }", "1:23", "true or false"),
        ("\x00", "1:1", "unexpected"),
    ],
)
def test_errors(text: str, place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert caught.value.where == f"s.pbtxt:{place}"
    assert said in caught.value.message


@settings(max_examples=300, deadline=None)
@given(st.text("feature{}<>[]:;,\"\\'name 01.e-#\ntype INT", max_size=40))
def test_any_text(text: str) -> None:
    """No text does anything but give a value or one clear error."""
    with contextlib.suppress(InputError):
        read(text)
