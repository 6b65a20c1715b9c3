"""The operators of `ai.onnx.ml` against onnxruntime: random trees, linear models, and what prepares columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain import hub
from drivetrain.errors import InputError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper = onnx.helper

pytestmark = pytest.mark.engine

RNG = np.random.default_rng(5)
X = RNG.normal(size=(64, 3)).astype(np.float32)
X[::9, 1] = np.nan
X[::7, 0] = 0.5


def model_of(op: str, outputs: dict[str, int], path: Path, **attributes: Any) -> Path:
    node = helper.make_node(op, ["X"], list(outputs), domain="ai.onnx.ml", **attributes)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [info("X", onnx.TensorProto.FLOAT, ["rows", 3])],
        [info(name, kind, ["rows", "n"][: 2 if kind == 1 else 1]) for name, kind in outputs.items()],
    )
    imports = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 9
    onnx.save(model, path)
    return path


def compare(path: Path, x: Any = X) -> None:
    session = runtime.InferenceSession(str(path))
    model = hub.from_onnx(path)
    results = model.apply(model.params, x)
    results = results if isinstance(results, dict) else {model.outputs[0]: results}
    for output, expected in zip(session.get_outputs(), session.run(None, {"X": x}), strict=True):
        np.testing.assert_allclose(
            np.asarray(results[output.name]), expected, rtol=1e-5, atol=1e-6, err_msg=output.name
        )


def trees(
    modes: list[str], prefix: str, ids: list[int], low: float, random: np.random.Generator = RNG
) -> dict[str, Any]:
    """A tree of three levels, one of a single leaf, and one that leans to a side, with random splits and leaves."""
    shapes = [{0: (1, 2), 1: (3, 4), 2: (5, 6)}, {}, {0: (1, 2), 2: (3, 4), 4: (5, 6)}]
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in ("treeids", "nodeids", "featureids", "modes")}
    nodes |= {f"nodes_{name}": [] for name in ("values", "truenodeids", "falsenodeids", "missing_value_tracks_true")}
    leaves: dict[str, list[Any]] = {f"{prefix}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, shape in enumerate(shapes):
        for node in range(7 if shape else 1):
            yes, no = shape.get(node, (0, 0))
            inner = node in shape
            value = float(random.choice([0.5, random.normal()])) if inner else 0.0
            mode = str(random.choice(modes)) if inner else "LEAF"
            row = (
                tree,
                node,
                int(random.integers(3)) if inner else 0,
                mode,
                value,
                yes,
                no,
                int(random.integers(2)) * inner,
            )
            for column, cell in zip(nodes.values(), row, strict=True):
                column.append(cell)
            for column_id in ids if not inner else []:
                weight = float(random.uniform(low, 1))
                for column, cell in zip(leaves.values(), (tree, node, column_id, weight), strict=True):
                    column.append(cell)
    return nodes | leaves


MODES = [
    ["BRANCH_LEQ"],
    ["BRANCH_LT"],
    ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"],
]


@pytest.mark.parametrize("modes", MODES, ids=["leq", "lt", "all"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_trees(modes: list[str], aggregate: str, tmp_path: Path) -> None:
    known = trees(modes, "target", [0, 1], -1) | {"n_targets": 2, "aggregate_function": aggregate}
    compare(model_of("TreeEnsembleRegressor", {"y": 1}, tmp_path / "m.onnx", **known))
    based = known | {"base_values": [0.25, -1.0]}
    compare(model_of("TreeEnsembleRegressor", {"y": 1}, tmp_path / "m.onnx", **based))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("low", [-1, 0], ids=["any", "positive"])
@pytest.mark.parametrize("ids", [[0], [0, 1]], ids=str)
@pytest.mark.parametrize("seed", [5, 6, 12])
def test_trees_for_two_classes(post: str, low: float, ids: list[int], seed: int, tmp_path: Path) -> None:
    """Also those that score one of the two alone, as boosted trees do."""
    labels = [3, 8] if len(ids) == 1 else [0, 1]  # onnxruntime gives positions where both classes are scored
    known = trees(MODES[0], "class", ids, low, np.random.default_rng(seed)) | {
        "classlabels_int64s": labels,
        "post_transform": post,
    }
    compare(model_of("TreeEnsembleClassifier", {"label": 7, "p": 1}, tmp_path / "m.onnx", **known))
    if len(ids) == 1:
        based = known | {"base_values": [0.25]}
        compare(model_of("TreeEnsembleClassifier", {"label": 7, "p": 1}, tmp_path / "m.onnx", **based))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_trees_for_three_classes(post: str, tmp_path: Path) -> None:
    known = trees(MODES[1], "class", [0, 1, 2], -1) | {"classlabels_int64s": [0, 1, 5], "post_transform": post}
    compare(model_of("TreeEnsembleClassifier", {"label": 7, "p": 1}, tmp_path / "m.onnx", **known))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_linear_classifiers(post: str, rows: int, tmp_path: Path) -> None:
    labels = [4, 9] if rows < 3 else [4, 9, 11]
    coefficients = [float(value) for value in RNG.normal(size=3 * rows)]
    known = {"classlabels_ints": labels, "coefficients": coefficients, "post_transform": post}
    known["intercepts"] = [float(value) for value in RNG.normal(size=rows)]
    outputs = {"label": 7, "p": 1}
    compare(model_of("LinearClassifier", outputs, tmp_path / "m.onnx", **known), np.nan_to_num(X))


def test_what_prepares_columns(tmp_path: Path) -> None:
    compare(model_of("Scaler", {"y": 1}, tmp_path / "m.onnx", offset=[0.5, 1.0, -1.0], scale=[2.0, 0.5, 1.0]))
    for norm in ("MAX", "L1", "L2"):
        compare(model_of("Normalizer", {"y": 1}, tmp_path / "m.onnx", norm=norm), np.abs(np.nan_to_num(X)) + 0.1)
    weights = {"coefficients": [0.5, 1.0, -1.0, 1.0, 0.0, 2.0], "intercepts": [1.0, 2.0], "targets": 2}
    compare(model_of("LinearRegressor", {"y": 1}, tmp_path / "m.onnx", **weights))


@pytest.mark.parametrize("opset", [None, 8, 9])
def test_files_of_trees_name_old_operators_or_none(opset: int | None, tmp_path: Path) -> None:
    """As onnxmltools writes them: XGBoost's have no operators of ONNX's own, LightGBM's are of version 8 or 9."""
    model = onnx.load(model_of("Scaler", {"y": 1}, tmp_path / "m.onnx", offset=[0.5] * 3, scale=[2.0] * 3))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    if opset is not None:
        model.opset_import.append(helper.make_opsetid("", opset))
        model.graph.node[0].output[0] = "scaled"
        model.graph.node.append(helper.make_node("Identity", ["scaled"], ["y"]))
    onnx.save(model, tmp_path / "m.onnx")
    compare(tmp_path / "m.onnx")
    if opset is not None:
        model.graph.node[1].op_type = "Relu"
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(InputError, match=f"operators of version {opset}, this release reads 13 to 25"):
            hub.from_onnx(tmp_path / "m.onnx")


def test_what_is_refused(tmp_path: Path) -> None:
    known = trees(MODES[0], "target", [0], -1)
    probit = model_of("TreeEnsembleRegressor", {"y": 1}, tmp_path / "m.onnx", **known | {"post_transform": "PROBIT"})
    with pytest.raises(InputError, match=r"post_transform PROBIT is not known\n.*NONE, LOGISTIC or SOFTMAX"):
        hub.from_onnx(probit).apply({}, X)
    second = trees(MODES[0], "class", [1], -1) | {"classlabels_int64s": [0, 1]}
    path = model_of("TreeEnsembleClassifier", {"label": 7, "p": 1}, tmp_path / "m.onnx", **second)
    with pytest.raises(InputError, match="score the second of two classes alone"):
        hub.from_onnx(path).apply({}, X)
    both = trees(MODES[0], "class", [0, 1], -1) | {"classlabels_int64s": [0, 1], "base_values": [0.5, 0.25]}
    path = model_of("TreeEnsembleClassifier", {"label": 7, "p": 1}, tmp_path / "m.onnx", **both)
    with pytest.raises(InputError, match="two classes have base values of their own"):
        hub.from_onnx(path).apply({}, X)
    circle = known | {"nodes_truenodeids": [1, 3, 5, *known["nodes_truenodeids"][3:]]}
    circle["nodes_truenodeids"][1] = 1
    path = model_of("TreeEnsembleRegressor", {"y": 1}, tmp_path / "m.onnx", **circle)
    with pytest.raises(InputError, match="leads back"):
        hub.from_onnx(path).apply({}, X)
