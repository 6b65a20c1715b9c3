"""ONNX models against onnxruntime: each operator by itself, whole models, and what is refused."""

import tracemalloc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain import hub
from drivetrain.errors import InputError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

pytestmark = [  # many compilations
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.usefixtures("compiled_in_a_hurry"),
]

RNG = np.random.default_rng(0)
F, I, B = np.float32, np.int64, np.bool_  # noqa: E741 - short, they stand in a table


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(F)


def positive(*shape: int) -> Any:
    return (np.abs(normal(*shape)) + 0.1).astype(F)


def ints(*values: Any) -> Any:
    return np.array(values, I)


def model_of(
    nodes: list[Any],
    inputs: dict[str, Any],
    held: dict[str, Any],
    outputs: list[str],
    opset: int = 20,
    inferred: bool = True,
) -> Any:
    def info(name: str, array: Any) -> Any:
        dims = ["b", *array.shape[1:]] if array.ndim else []
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)

    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, array) for name, array in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 9
    return onnx.shape_inference.infer_shapes(model) if inferred else model


def compare(model: Any, inputs: dict[str, Any], path: Path) -> None:
    onnx.save(model, path)
    wanted = runtime.InferenceSession(str(path)).run(None, inputs)
    read = hub.from_onnx(path)
    for call in (read.apply, jax.jit(read.apply)):
        outputs = call(read.params, inputs)
        actual = [outputs[name] for name in read.outputs] if len(read.outputs) > 1 else [outputs]
        for mine, theirs in zip(actual, wanted, strict=True):
            assert mine.shape == theirs.shape
            assert mine.dtype.kind == theirs.dtype.kind
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


X, IMAGE = normal(3, 4), normal(2, 4, 9, 8)
# op → (inputs by name, weights and constants by name, attributes), several of each where attributes matter
CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]] = {
    **{op: [({"x": X * 2}, {}, {})] for op in (
        "Abs", "Ceil", "Erf", "Exp", "Floor", "HardSwish", "Identity", "Neg", "Relu", "Sigmoid", "Softplus", "Tanh")},
    **{op: [({"x": positive(3, 4)}, {}, {})] for op in ("Log", "Reciprocal", "Sqrt")},
    **{op: [({"x": X, "y": normal(3, 4)}, {}, {}), ({"x": X}, {"y": normal(4)}, {})] for op in (
        "Add", "Sub", "Mul", "Max", "Min", "Greater", "Less", "Sum")},
    **{op: [({"x": X > 0, "y": normal(3, 4) > 0}, {}, {})] for op in ("And", "Or")},
    **{op: [({"x": X}, {}, {}), ({"x": X}, {}, {"axis": 0})] for op in ("Softmax", "LogSoftmax")},
    **{op: [({"x": X}, {}, {}), ({"x": X}, {}, {"alpha": 0.3})] for op in ("Elu", "LeakyRelu", "Selu", "HardSigmoid")},
    **{op: [({"x": normal(2, 3, 4)}, {"a": ints(1)}, {"keepdims": 0}), ({"x": X}, {}, {})] for op in (
        "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")},
    **{op: [({"x": IMAGE}, {}, {})] for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "Not": [({"x": X > 0}, {}, {})],
    "Equal": [({"x": ints(1, 2, 3), "y": ints(1, 5, 3)}, {}, {})],
    "Div": [({"x": X, "y": positive(3, 4)}, {}, {}), ({"x": ints(7, -7, 8), "y": ints(2, 2, -3)}, {}, {}),
            ({"x": np.array([-(2**31), 7], np.int32), "y": np.array([2, -2], np.int32)}, {}, {})],
    "Pow": [({"x": positive(3, 4)}, {"y": np.array(2.5, F)}, {})],
    "Clip": [({"x": X}, {"low": np.array(-0.5, F), "high": np.array(0.5, F)}, {}),
             ({"x": X}, {"": F(0), "h": F(0.2)}, {})],
    "Cast": [({"x": X * 3}, {}, {"to": 7}), ({"x": ints(0, 1, 2)}, {}, {"to": 1}),
             ({"x": ints(0, 1, 2)}, {}, {"to": 9})],
    "Gelu": [({"x": X}, {}, {}), ({"x": X}, {}, {"approximate": "tanh"})],
    "PRelu": [({"x": X}, {"s": positive(4)}, {})],
    "Gemm": [({"x": X}, {"w": normal(4, 5), "c": normal(5)}, {}),
             ({"x": X}, {"w": normal(5, 4), "c": normal(5)}, {"transB": 1, "alpha": 0.5, "beta": 2.0})],
    "MatMul": [({"x": X}, {"w": normal(4, 5)}, {}), ({"x": normal(2, 3, 4), "y": normal(2, 4, 5)}, {}, {})],
    "Einsum": [({"x": X, "y": normal(3, 4)}, {}, {"equation": "bi,bi->b"})],
    "Conv": [({"x": IMAGE}, {"w": normal(6, 4, 3, 3), "b": normal(6)}, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
             ({"x": IMAGE}, {"w": normal(4, 1, 3, 2)}, {"group": 4, "dilations": [2, 1]}),
             ({"x": IMAGE}, {"w": normal(3, 4, 3, 2)}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
             ({"x": IMAGE}, {"w": normal(3, 4, 2, 4)}, {"auto_pad": "SAME_LOWER"}),
             ({"x": normal(2, 4, 9)}, {"w": normal(3, 4, 3)}, {})],
    "MaxPool": [({"x": IMAGE}, {}, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
                ({"x": IMAGE}, {}, {"kernel_shape": [2, 2], "dilations": [2, 1]})],
    "AveragePool": [({"x": IMAGE}, {}, {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
                    ({"x": IMAGE}, {}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1})],
    "BatchNormalization": [
        ({"x": IMAGE}, {"s": normal(4), "b": normal(4), "m": normal(4), "v": positive(4)}, {"epsilon": 1e-3})],
    "LayerNormalization": [({"x": normal(2, 3, 4)}, {"s": normal(4), "b": normal(4)}, {}),
                           ({"x": normal(2, 3, 4)}, {"s": normal(3, 4)}, {"axis": 1})],
    "Dropout": [({"x": X}, {}, {})],
    "Reshape": [({"x": normal(3, 2, 4)}, {"s": ints(0, -1)}, {}), ({"x": normal(3, 2, 4)}, {"s": ints(-1, 4, 2)}, {})],
    "Flatten": [({"x": normal(3, 2, 4)}, {}, {}), ({"x": normal(3, 2, 4)}, {}, {"axis": 2})],
    "Transpose": [({"x": normal(3, 2, 4)}, {}, {"perm": [0, 2, 1]}), ({"x": X}, {}, {})],
    "Squeeze": [({"x": normal(3, 1, 4)}, {"a": ints(1)}, {})],
    "Unsqueeze": [({"x": X}, {"a": ints(1, -1)}, {})],
    "Concat": [({"x": X, "y": normal(3, 2)}, {}, {"axis": 1}), ({"x": X}, {"y": normal(3, 4)}, {"axis": -1})],
    "Slice": [
        ({"x": normal(3, 6, 5)}, {"s": ints(1, -2), "e": ints(5, 2**63 - 1), "a": ints(1, 2), "t": ints(2, 1)}, {}),
              ({"x": X}, {"s": ints(-1), "e": ints(-(2**63)), "a": ints(1), "t": ints(-1)}, {})],
    "Gather": [({"i": ints(0, 2, -1)}, {}, {}), ({"x": normal(3, 6)}, {"i": ints(1, 5)}, {"axis": 1})],
    "Expand": [({"x": normal(3, 1, 4)}, {"s": ints(1, 5, 1)}, {})],
    "Pad": [({"x": X}, {"p": ints(0, 1, 0, 2), "v": np.array(7, F)}, {}),
            ({"x": X}, {"p": ints(0, 1, 0, 2)}, {"mode": "reflect"}),
            ({"x": X}, {"p": ints(0, 1, 0, 2)}, {"mode": "edge"})],
    "ArgMax": [({"x": X}, {}, {"axis": 1, "keepdims": 0}), ({"x": X}, {}, {})],
    "Where": [({"c": X > 0, "x": X, "y": normal(3, 4)}, {}, {})],
}  # fmt: skip
ALONE = [(op, number) for op, cases in sorted(CASES.items()) for number in range(len(cases))]
ELSEWHERE = {"Constant", "ConstantOfShape", "Shape", "Split"}  # several outputs, or none of the data: tested below


def test_every_operator_is_tested() -> None:
    from drivetrain.engine.hub.onnx_ops import OPS

    assert CASES.keys() | ELSEWHERE == OPS.keys()


@pytest.mark.parametrize(("op", "number"), ALONE)
def test_an_operator(op: str, number: int, tmp_path: Path) -> None:
    inputs, held, attributes = CASES[op][number]
    if op == "Gather" and "i" in inputs:
        held = {"table": normal(4, 3)}
        names = ["table", "i"]
    else:
        names = [*inputs, *held]
    node = helper.make_node(op, names, ["out"], **attributes)
    held = {name: np.asarray(array) for name, array in held.items() if name}
    compare(model_of([node], inputs, held, ["out"]), inputs, tmp_path / "m.onnx")


def test_split(tmp_path: Path) -> None:
    x = normal(3, 7)
    for held, attributes, outputs in (
        ({"s": ints(2, 5)}, {"axis": 1}, ["a", "b"]),
        ({}, {"axis": 1, "num_outputs": 3}, ["a", "b", "c"]),
    ):
        node = helper.make_node("Split", ["x", *held], outputs, **attributes)
        compare(model_of([node], {"x": x}, held, outputs), {"x": x}, tmp_path / "m.onnx")


def test_shapes_computed_in_the_graph(tmp_path: Path) -> None:
    """What PyTorch writes for `x.view(x.size(0), -1) + zeros(x.size(0), 1)`; the batch stays symbolic when saved."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(ints(0))),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["y"]),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Concat", ["rows", "one"], ["wide"], axis=0),
        helper.make_node("ConstantOfShape", ["wide"], ["c"], value=numpy_helper.from_array(np.array([2.0], F))),
        helper.make_node("Add", ["y", "c"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["out"]),
    ]
    x, w = normal(3, 2, 4), normal(8, 2)
    model = model_of(nodes, {"x": x}, {"w": w}, ["out"])
    compare(model, {"x": x}, tmp_path / "m.onnx")
    read = hub.from_onnx(tmp_path / "m.onnx")
    module = hub.module(read.apply, read.params, {"x": x})
    many = normal(5, 2, 4)
    np.testing.assert_allclose(module({"x": many}), (many.reshape(5, 8) + 2) @ w, rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 17, 21, 22])
def test_a_network_is_published_and_trained(tmp_path: Path, opset: int) -> None:
    """Conv, batch norm, pooling, dense: equal to onnxruntime; its gradient to finite differences of onnxruntime."""
    rng = np.random.default_rng(opset)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(F)

    held = {
        "c.weight": normal(6, 1, 3, 3), "c.bias": normal(6),
        "n.weight": normal(6), "n.bias": normal(6), "n.mean": normal(6), "n.var": np.ones(6, F),
        "d.weight": normal(3, 54), "d.bias": normal(3),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "c.weight", "c.bias"], ["1"]),
        helper.make_node("BatchNormalization", ["1", "n.weight", "n.bias", "n.mean", "n.var"], ["2"]),
        helper.make_node("Tanh", ["2"], ["3"]),
        helper.make_node("AveragePool", ["3"], ["4"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["4"], ["5"]),
        helper.make_node("Gemm", ["5", "d.weight", "d.bias"], ["6"], transB=1),
        helper.make_node("Softmax", ["6"], ["out"], axis=-1),
    ]
    x = normal(4, 1, 8, 8)
    path = tmp_path / "net.onnx"
    compare(model_of(nodes, {"x": x}, held, ["out"], opset), {"x": x}, path)
    read = hub.from_onnx(path)
    assert read.inputs["x"].shape == (1, 8, 8)
    assert read.params.keys() == {name.replace(".", "/") for name in held}
    hub.save(hub.module(read.apply, read.params, x), tmp_path / "hub")
    module = hub.load(tmp_path / "hub", trainable=True)
    session = runtime.InferenceSession(str(path))
    np.testing.assert_allclose(module(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-6)
    direction = np.cos(np.arange(x.size)).reshape(x.shape).astype(F)
    direction /= np.linalg.norm(direction)
    slope = jnp.vdot(jax.grad(lambda x: jnp.sum(module(x)[:, 0]))(x), direction)
    up, down = (session.run(None, {"x": (x + e * direction).astype(F)})[0][:, 0].sum() for e in (2e-2, -2e-2))
    np.testing.assert_allclose(slope, (up - down) / 4e-2, rtol=0.05, atol=2e-3)


def refused(model: Any, path: Path, said: str) -> None:
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=said):
        hub.from_onnx(path)


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    inputs = {"x": X}
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2)
    unknown = model_of([lstm], {"x": normal(3, 2, 4)}, {"w": normal(1, 8, 4), "r": normal(1, 8, 2)}, ["y"])
    refused(unknown, path, r"has LSTM, which this release does not know\n  fix: .*known are Abs, Add, .*Where")
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    refused(model_of(relu, inputs, {}, ["y"], 11), path, "uses operators of version 11, this release reads 13 to")
    foreign = helper.make_node("Relu", ["x"], ["y"], domain="com.microsoft")
    foreign = model_of([foreign], inputs, {}, ["y"], inferred=False)
    foreign.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [3, 4]))
    foreign.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    refused(foreign, path, r"com\.microsoft\.Relu")
    typed = model_of(relu, inputs, {}, ["y"])
    for code, said in ((99, "not a tensor's: 99"), (0, "not a tensor's: 0"), (onnx.TensorProto.STRING, "is text")):
        typed.graph.input[0].type.tensor_type.elem_type = code
        refused(typed, path, f"input 'x' of .*m.onnx .*{said}")
    (tmp_path / "no.onnx").write_bytes(b"not at all")
    with pytest.raises(InputError, match="is not an ONNX model that can be used"):
        hub.from_onnx(tmp_path / "no.onnx")
    with pytest.raises(InputError, match="does not exist"):
        hub.from_onnx(tmp_path / "nothing.onnx")


def test_constants_are_divided_towards_zero_as_well(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value=numpy_helper.from_array(ints(-7, 7, -8, -(2**63)))),
        helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(ints(2, -2, 3, 2**62))),
        helper.make_node("Div", ["a", "b"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    inputs = {"x": ints(0, 0, 0, 0)}
    compare(model_of(nodes, inputs, {}, ["y"]), inputs, tmp_path / "m.onnx")


def test_errors_name_the_node(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="head")]
    onnx.save(model_of(nodes, {"x": X}, {"w": normal(4, 2)}, ["y"]), path)
    read = hub.from_onnx(path)
    with pytest.raises(InputError, match=r"ONNX node 'head' \(MatMul\) on \[\[3, 5\], \[4, 2\]\] fails"):
        read.apply(read.params, normal(3, 5))
    with pytest.raises(InputError, match=r"input 'x' of .* is missing"):
        read.apply(read.params, {"z": X})
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], ceil_mode=1, name="pool")
    onnx.save(model_of([pool], {"x": IMAGE}, {}, ["y"]), path)
    read = hub.from_onnx(path)
    with pytest.raises(InputError, match=r"'pool' \(MaxPool\): it rounds sizes up"):
        read.apply(read.params, IMAGE)
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="shape")]
    model = model_of(nodes, {"x": X, "s": ints(4, 3)}, {}, ["y"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["a", "b"]))
    onnx.save(model, path)
    read = hub.from_onnx(path)
    with pytest.raises(InputError, match="its shapes depend on the data"):
        read.apply(read.params, {"x": X, "s": ints(4, 3)})


def test_weights_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(4, F).tobytes())
    (tmp_path / "in").mkdir()
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = model_of([node], {"x": X}, {"w": normal(4)}, ["y"])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "../secret", "offset": "0", "length": "16"}.items():
        tensor.external_data.add(key=key, value=value)
    refused(model, tmp_path / "in" / "m.onnx", "is not an ONNX model that can be used")


def test_tensors_that_cannot_be_are_one_error(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    for change in (
        lambda tensor: tensor.dims.extend([0, 1 << 62]),  # no number, and yet too many
        lambda tensor: setattr(tensor, "data_type", 77),
    ):
        model = model_of([node], {"x": X}, {"w": normal(0)}, ["y"], inferred=False)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["a", "b"]))
        change(model.graph.initializer[0])
        refused(model, tmp_path / "m.onnx", "is not an ONNX model that can be used")
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(normal(4)))
    constant.attribute[0].t.data_type = 77
    model = model_of([constant, node], {"x": X}, {}, ["y"], inferred=False)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["a", "b"]))
    refused(model, tmp_path / "m.onnx", "is not an ONNX model that can be used")


def test_what_a_file_makes_of_nothing_is_bounded(tmp_path: Path) -> None:
    """A file of 300 bytes is not to fill the memory, or to end in a traceback."""
    path, tree = tmp_path / "m.onnx", {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_modes": ["LEAF"]}
    grown = [helper.make_node("Concat", [f"t{n}"] * 2, [f"t{n + 1}"], axis=0) for n in range(34)]
    for nodes, held in (
        ([helper.make_node("ConstantOfShape", ["s"], ["c"])], {"s": ints(1 << 30, 1 << 10)}),
        ([helper.make_node("ConstantOfShape", ["s"], ["c"])], {"s": ints(1 << 29)}),
        ([*grown, helper.make_node("Cast", ["t34"], ["c"], to=1)], {"t0": ints(1, 2)}),
        ([helper.make_node("TreeEnsembleRegressor", ["x"], ["c"], domain="ai.onnx.ml", n_targets=1 << 50, **tree,
          nodes_truenodeids=[0], nodes_falsenodeids=[0], nodes_featureids=[0], nodes_values=[0.0], target_treeids=[0],
          target_nodeids=[0], target_ids=[0], target_weights=[1.0])], {}),
        ([helper.make_node("TreeEnsembleRegressor", ["x"], ["c"], domain="ai.onnx.ml", **tree,
          nodes_truenodeids=[0], nodes_falsenodeids=[0], nodes_featureids=[1 << 40], nodes_values=[0.0],
          target_treeids=[0], target_nodeids=[0], target_ids=[0], target_weights=[1.0])], {}),
        ([helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "c"], domain="ai.onnx.ml", **tree,
          nodes_truenodeids=[0], nodes_falsenodeids=[0], nodes_featureids=[0], nodes_values=[0.0], class_treeids=[0],
          class_nodeids=[0], class_ids=[1 << 50], class_weights=[1.0])], {}),
    ):  # fmt: skip
        model = model_of([*nodes, helper.make_node("Add", ["x", "c"], ["y"])], {"x": X}, held, ["y"], inferred=False)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["a", "b"]))
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        path.write_bytes(model.SerializeToString())
        read = hub.from_onnx(path)
        tracemalloc.start()
        with pytest.raises(InputError, match=r"ONNX node .* (fails|.*it makes more than 256 MiB|.*1 weights for)"):
            read.apply(read.params, X)
        assert tracemalloc.get_traced_memory()[1] < 5 * (256 << 20)  # what all steps before hold, and the last
        tracemalloc.stop()
