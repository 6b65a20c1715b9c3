"""The messages as on the wire: against the public definitions, as TensorFlow's and Triton's own clients ship them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drivetrain.serving import protos
from drivetrain.serving.proto_text import file_descriptor
from google.protobuf import descriptor_pb2, descriptor_pool, json_format

DATA = Path(__file__).parent / "data"
PUBLIC: dict[str, dict[str, Any]] = json.loads((DATA / "public_definitions.json").read_text())
TYPES = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 8: "bool", 9: "string", 12: "bytes", 13: "uint32",
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC["messages"])
def test_fields_are_those_of_the_public_messages(name: str) -> None:
    public = PUBLIC["messages"][name]
    described = descriptor_pb2.DescriptorProto()
    protos.POOL.FindMessageTypeByName(name).CopyToProto(described)
    for field in described.field:
        label = "repeated " if field.label == field.LABEL_REPEATED else ""
        assert [field.number, label + (field.type_name.lstrip(".") or TYPES[field.type])] == public[field.name]


def test_that_many_fields_were_compared() -> None:
    names = [name for name in PUBLIC["messages"] if protos.POOL.FindMessageTypeByName(name)]
    assert len(names) > 75
    assert sum(len(protos.POOL.FindMessageTypeByName(name).fields) for name in names) > 180


def test_numbers_are_packed() -> None:
    assert protos.TensorProto(half_val=[1, 2]).SerializeToString() == b"\x6a\x02\x01\x02"
    assert protos.TensorProto.FromString(b"\x68\x01\x68\x02").half_val[:] == [1, 2]  # as old clients write them


@pytest.mark.parametrize("name", PUBLIC["enums"])
def test_numbers_of_enums_are_the_public_ones(name: str) -> None:
    values = {value.name: value.number for value in protos.POOL.FindEnumTypeByName(name).values}
    assert len(values) > 2
    assert values.items() <= PUBLIC["enums"][name].items()


@pytest.mark.parametrize("name", PUBLIC["methods"])
def test_methods_are_the_public_ones(name: str) -> None:
    for method in protos.POOL.FindServiceByName(name).methods:
        described = [
            method.input_type.full_name, method.output_type.full_name, method.client_streaming, method.server_streaming
        ]  # fmt: skip
        assert described == PUBLIC["methods"][name][method.name]


def test_both_reflections_are_the_same() -> None:
    new, old = (protos.POOL.FindFileByName(f"{name}.proto") for name in ("reflection", "reflection_v1alpha"))
    assert new.serialized_pb.replace(b"v1", b"").count(b"ServerReflection") > 3
    assert [*new.message_types_by_name] == [*old.message_types_by_name]
    for name, message in new.message_types_by_name.items():
        numbers = {field.name: field.number for field in message.fields}
        assert numbers == {field.name: field.number for field in old.message_types_by_name[name].fields}


def test_the_pool_is_ours_alone() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("tensorflow_serving.proto")
    # Another library's messages of the same names, with other fields, before and after.
    code = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
def define(path, package, name):
    file = descriptor_pb2.FileDescriptorProto(name=path, package=package, syntax="proto3")
    file.message_type.add(name=name).field.add(name="other", number=1, type=9, label=1)
    descriptor_pool.Default().Add(file)
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"{package}.{name}"))
theirs = define("tensorflow.proto", "tensorflow", "TensorProto")
from drivetrain.serving import protos
more = define("inference.proto", "inference", "ModelInferRequest")
assert theirs(other="x").SerializeToString() == b"\\n\\x01x" == more(other="x").SerializeToString()
assert protos.TensorProto(dtype=1).SerializeToString() == b"\\x08\\x01"
assert protos.ModelInferRequest(model_name="x").SerializeToString() == b"\\n\\x01x"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_metadata_is_told_in_json() -> None:
    spec = protos.ModelSpec(signature_name="x", version={"value": 3})
    assert json_format.MessageToDict(spec) == {"signatureName": "x", "version": "3"}
    response = protos.GetModelMetadataResponse()
    signatures = protos.SignatureDefMap()
    signatures.signature_def["serving_default"].method_name = "tensorflow/serving/predict"
    response.metadata["signature_def"].type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    response.metadata["signature_def"].value = signatures.SerializeToString()
    as_json = json_format.MessageToDict(response, descriptor_pool=protos.POOL)
    assert as_json["metadata"]["signature_def"]["signatureDef"]["serving_default"] == {
        "methodName": "tensorflow/serving/predict"
    }


def test_warm_up_files_are_read() -> None:
    # A PredictionLog as TensorFlow writes it, and what else one may hold: field 5, a session's run.
    log = protos.PredictionLog.FromString(b"\x32\x0a\x0a\x08\x0a\x06\x0a\x04iris")
    assert log.WhichOneof("log_type") == "predict_log"
    assert log.predict_log.request.model_spec.name == "iris"
    assert protos.PredictionLog.FromString(b"\x2a\x02\x08\x01").WhichOneof("log_type") is None


def test_text_is_parsed() -> None:
    file = file_descriptor(
        "a.proto",
        """
        package a.b;  // what follows is a comment
        import "other.proto";
        message Outer {
          message Inner { repeated bytes many_values = 16; }
          enum Kind { NONE = 0; SOME = 5; }
          oneof choice { Inner inner = 1; Kind kind = 2; }
          map<string, Inner> named_inner = 3;
        }
        service Calls { rpc One(Outer) returns (stream Outer); rpc Two(stream a.b.Outer) returns (Outer); }
        """,
    )
    outer = file.message_type[0]
    assert (file.package, file.dependency[:]) == ("a.b", ["other.proto"])
    assert [(field.name, field.number, field.type_name, field.HasField("oneof_index")) for field in outer.field] == [
        ("inner", 1, "Inner", True), ("kind", 2, "Kind", True), ("named_inner", 3, "NamedInnerEntry", False)
    ]  # fmt: skip
    assert [nested.name for nested in outer.nested_type] == ["Inner", "NamedInnerEntry"]
    assert outer.nested_type[1].options.map_entry
    assert outer.nested_type[0].field[0].label == outer.nested_type[0].field[0].LABEL_REPEATED
    assert [(value.name, value.number) for value in outer.enum_type[0].value] == [("NONE", 0), ("SOME", 5)]
    assert [(m.client_streaming, m.server_streaming) for m in file.service[0].method] == [(False, True), (True, False)]


@pytest.mark.parametrize("text", ["import 'x';", "message A { string b = 1 [deprecated]; }", "option x = 1;"])
def test_text_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no meaning|does not begin|is not a field"):
        file_descriptor("a.proto", text)
