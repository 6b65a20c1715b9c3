"""The graph: immutable, readable, a JSON round trip, and pruned exactly."""

import dataclasses
import json

import pytest
from drivetrain.engine.graphs.graph import Graph, Output
from drivetrain.engine.graphs.json import graph_json, graph_of_json
from drivetrain.engine.graphs.nodes import DeviceStage, HostNode, Tensor
from drivetrain.errors import InputError


def graph() -> Graph:
    a, b = Tensor("column/a", "float64", column=True), Tensor("column/b", "string", column=True)
    x, y, i = Tensor("x", "float32"), Tensor("y", "float32"), Tensor("i", "int32")
    stage = DeviceStage(
        "transform-0",
        ("x", "i"),
        (("float32", ("b",)), ("int32", ("b",))),
        ("mean",),
        (y, Tensor("z", "float32", ("b", 3))),
        ((0,), (0, 1)),
    )
    nodes = (
        HostNode("values", ("column/a",), (x,), {"dtype": "float32", "column": "a"}),
        HostNode("lookup", ("column/b",), (i,), {"oov_buckets": 1}, ("words",)),
        stage,
    )
    return Graph({"a": a, "b": b}, nodes, {"some": {"y": Output("y")}, "all": {"y": Output("y"), "z": Output("z", 3)}})


def test_json_round_trip_and_repr() -> None:
    made = graph_of_json(json.loads(json.dumps(graph_json(graph()))))
    assert made == graph()
    text = repr(made)
    assert "i:int32[b] = lookup(column/b, oov_buckets=1, @words)" in text
    assert "y:float32[b], z:float32[b,3] = device<transform-0>(x, i; 1 weights)" in text
    assert "some -> y=y" in text


def test_pruning_is_exact_per_output() -> None:
    some = graph().signature("some")
    assert list(some.inputs) == ["a"]
    assert [str(node) for node in some.nodes] == [
        "values(column/a, dtype='float32', column='a')",
        "device<transform-0>(x, ·; 1 weights)",
    ]
    assert list(some.signatures) == ["some"]
    assert graph().signature("all").nodes == graph().nodes
    with pytest.raises(InputError, match="no signature 'none'"):
        graph().signature("none")


def test_it_cannot_be_changed() -> None:
    made = graph()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.nodes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.signatures["some"]["y"] = Output("z")  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.pop("nodes"), "KeyError"),
        (lambda d: d["nodes"].reverse(), "read before it exists"),
        (lambda d: d["nodes"].append(d["nodes"][0]), "is made twice"),
        (lambda d: d["nodes"][0].update(kind="python"), "node kind"),
        (lambda d: d["nodes"][2]["needs"][0].append(7), "input 7"),
        (lambda d: d["nodes"][2]["slots"].pop(), "differ in number"),
        (lambda d: d["nodes"][0]["outputs"][0].update(dtype="object"), "dtype 'object'"),
        (lambda d: d["nodes"][0]["outputs"][0].update(shape=[-1]), "shape"),
        (lambda d: d["signatures"][0][1][0][1].update(tensor="nope"), "never made"),
        (lambda d: d["signatures"][0][1][0][1].update(size="3"), "size '3'"),
    ],
)
def test_what_is_no_graph_is_refused(change: object, says: str) -> None:
    data = json.loads(json.dumps(graph_json(graph())))
    change(data)  # type: ignore[operator]
    with pytest.raises(InputError, match=says):
        graph_of_json(data)
