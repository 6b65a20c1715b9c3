"""ImportModel: bundles as they are, and ONNX models against onnxruntime, behind a preprocessing function."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components import BulkInferrer, Evaluator, ImportModel
from drivetrain.components.evaluation import EvaluationConfig
from drivetrain.data import executor, open_examples, open_parquet, sinks
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, analyze
from drivetrain.metadata import Examples, TransformGraph
from drivetrain.pipelines import FunctionRef, Home, load_pipeline, run_pipeline

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper, numpy_helper = onnx.helper, onnx.numpy_helper

pytestmark = pytest.mark.engine

ROWS = 60
RNG = np.random.default_rng(3)
TABLE = pa.table({"a": RNG.normal(size=ROWS), "b": RNG.normal(size=ROWS), "scale": RNG.uniform(1, 2, ROWS)})


def preprocess(columns: Mapping[str, Any]) -> dict[str, Any]:
    import jax.numpy as jnp

    return {
        "x": jnp.stack([columns["a"], columns["b"]], -1),
        "scale": columns["scale"],
        "late": (columns["a"] > 0.0).astype("float32"),
    }


judged = EvaluationConfig(label="late", prediction="probability")


def examples_of(folder: Path) -> Examples:
    """The rows that the fixture `graph` wrote, as a split."""
    examples = Examples.new()
    source = open_parquet([folder / "rows.parquet"])
    executor("local").map(source, None, sinks(examples.content, ["eval"])).write(examples.content)
    return examples


@pytest.fixture
def graph(tmp_path: Path) -> TransformGraph:
    graph = TransformGraph.new()
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    analyze(preprocess, open_parquet([tmp_path / "rows.parquet"])).save(graph.content)
    return graph


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """sigmoid(x · w) · scale, with outputs [rows, 1] and [rows, 3]."""
    return saved(tmp_path / "model.onnx", "x")


def saved(path: Path, features: str, op: str = "Sigmoid", domain: str = "") -> Path:
    info, float32 = helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    onnx_graph = helper.make_graph(
        [
            helper.make_node("MatMul", [features, "w"], ["score"]),
            helper.make_node(op, ["score"], ["p"], domain=domain),
            helper.make_node("Mul", ["p", "scale"], ["probability"]),
            helper.make_node("MatMul", [features, "v"], ["three"]),
        ],
        "g",
        [info(features, float32, ["rows", 2]), info("scale", float32, ["rows", 1])],
        [info("probability", float32, ["rows", 1]), info("three", float32, ["rows", 3])],
        [
            numpy_helper.from_array(np.array([[0.5], [-1.5]], np.float32), "w"),
            numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "v"),
        ],
    )
    imports = [helper.make_opsetid("", 20)] + ([helper.make_opsetid(domain, 3)] if domain else [])
    model = helper.make_model(onnx_graph, opset_imports=imports)
    model.ir_version = 9
    onnx.save(model, path)
    return path


def test_an_onnx_model_gives_what_onnxruntime_gives(graph: TransformGraph, file: Path, tmp_path: Path) -> None:
    model = ImportModel(graph, path=str(file), label="late")
    x = np.stack([TABLE["a"], TABLE["b"]], -1).astype(np.float32)
    scale = TABLE["scale"].to_numpy().astype(np.float32)[:, None]
    probability, three = runtime.InferenceSession(str(file)).run(None, {"x": x, "scale": scale})
    outputs = Bundle.load(model.content).run("evaluate", TABLE)
    np.testing.assert_allclose(outputs["probability"], probability[:, 0], rtol=1e-5)
    np.testing.assert_allclose(outputs["three"], three, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["late"], TABLE["a"].to_numpy() > 0)
    predictions = BulkInferrer(examples_of(tmp_path), [model], require_blessing=False, keep=[])
    (shard,) = open_examples(predictions.content, "eval", ["probability"]).read(0)
    np.testing.assert_array_equal(shard.column(0), outputs["probability"])


def test_a_bundle_is_taken_as_it_is(graph: TransformGraph, file: Path) -> None:
    model = ImportModel(graph, path=str(file), label="late")
    (model.content / "notes.txt").write_text("not the bundle's")
    again = ImportModel(path=str(model.content / "manifest.json"))
    assert sorted(Bundle.load(again.content).signatures) == ["evaluate", "predict"]
    (model.content / "notes.txt").unlink()
    assert digest_tree(again.content) == digest_tree(model.content)
    weights = next((model.content / "weights").iterdir())
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=rf"{weights.name} does not match its digest"):
        ImportModel(path=str(model.content / "manifest.json"))


def forest_file(forest: Any, path: Path) -> Path:
    """A forest of two classes as skl2onnx writes it: shares of the second in the leaves, over the trees, as id 0."""
    nodes: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values")}
    nodes |= {"truenodeids": [], "falsenodeids": []}
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, fitted in enumerate(each.tree_ for each in forest.estimators_):
        for node, (yes, no) in enumerate(zip(fitted.children_left, fitted.children_right, strict=True)):
            leaf = yes < 0
            split = (0.0, 0, 0) if leaf else (float(fitted.threshold[node]), int(yes), int(no))
            cells = (tree, node, max(0, fitted.feature[node]), "LEAF" if leaf else "BRANCH_LEQ", *split)
            for column, cell in zip(nodes.values(), cells, strict=True):
                column.append(cell)
            shares = fitted.value[node][0] / fitted.value[node][0].sum() / len(forest.estimators_)
            if leaf:
                for column, cell in zip(leaves.values(), (tree, node, 0, float(shares[1])), strict=True):
                    column.append(cell)
    attributes = {f"nodes_{name}": cells for name, cells in nodes.items()}
    attributes |= {f"class_{name}": cells for name, cells in leaves.items()}
    attributes["classlabels_int64s"] = forest.classes_.tolist()
    info, outputs = helper.make_tensor_value_info, ["label", "probabilities"]
    ensemble = helper.make_node("TreeEnsembleClassifier", ["x"], outputs, domain="ai.onnx.ml", **attributes)
    kinds = [info("label", onnx.TensorProto.INT64, ["rows"])]
    kinds.append(info("probabilities", onnx.TensorProto.FLOAT, ["rows", "n"]))
    trees = helper.make_graph([ensemble], "g", [info("x", onnx.TensorProto.FLOAT, ["rows", 2])], kinds)
    imports = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 20)]
    model = helper.make_model(trees, opset_imports=imports)
    model.ir_version = 9
    onnx.save(model, path)
    return path


@pytest.mark.slow
def test_a_forest_of_scikit_learn(graph: TransformGraph, tmp_path: Path) -> None:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import roc_auc_score

    x = np.stack([TABLE["a"], TABLE["b"]], -1).astype(np.float32)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(x, x[:, 0] * x[:, 1] > 0)
    forest.classes_ = forest.classes_.astype(int)
    path = str(forest_file(forest, tmp_path / "forest.onnx"))
    probabilities = forest.predict_proba(x)
    outputs = Bundle.load(ImportModel(graph, path=path, label="late").content).run("predict", TABLE)
    np.testing.assert_allclose(outputs["probabilities"], probabilities, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["label"], probabilities[:, 1] > 0.5)
    model = ImportModel(graph, path=path, label="late", outputs={"probability": "probabilities[1]"})
    bundle = Bundle.load(model.content)
    assert list(bundle.signatures["evaluate"].outputs) == ["probability", "late"]
    np.testing.assert_allclose(bundle.run("predict", TABLE)["probability"], probabilities[:, 1], rtol=1e-5, atol=1e-6)
    evaluation = Evaluator(examples_of(tmp_path), model, config=FunctionRef(None, f"{__name__}:judged"))
    assert evaluation.metrics["auc"] == pytest.approx(roc_auc_score(TABLE["a"].to_numpy() > 0, probabilities[:, 1]))
    with pytest.raises(InputError, match=r"no output 'probability'\n.*did you mean 'probabilities'"):
        ImportModel(graph, path=path, label="late", outputs={"p": "probability[1]"})
    with pytest.raises(InputError, match=r"'probabilities' is \[rows, 2\] and has no position 2"):
        ImportModel(graph, path=path, label="late", outputs={"p": "probabilities[2]"})


PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import BulkInferrer, ExampleGen, ImportModel

    @dt.pipeline
    def scored() -> None:
        examples = ExampleGen("rows.parquet", splits={"eval": 1})
        BulkInferrer(examples, [ImportModel(path="bundle/manifest.json")], require_blessing=False)
"""


def test_in_a_pipeline_the_file_is_the_key(
    graph: TransformGraph, file: Path, project: Callable[..., Path], tmp_path: Path
) -> None:
    folder = project("scored", pipeline=PIPELINE)
    shutil.copytree(ImportModel(graph, path=str(file), label="late").content, tmp_path / "bundle")
    home = Home(tmp_path / ".drivetrain")

    def run() -> set[str]:
        result = run_pipeline(home, load_pipeline(folder))
        return {node.state for name, node in result.nodes.items() if name != "ExampleGen"}

    assert run() == {"COMPLETE"}
    assert run() == {"CACHED"}
    Bundle.load(tmp_path / "bundle").with_defaults({"scale": 1.0}).save(tmp_path / "other")
    shutil.rmtree(tmp_path / "bundle")
    (tmp_path / "other").rename(tmp_path / "bundle")
    assert run() == {"COMPLETE"}
    home.close()


def test_what_is_no_model(graph: TransformGraph, file: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"")
    (tmp_path / "model").mkdir()
    with pytest.raises(
        InputError, match=r"model is a folder\n  fix: name the manifest\.json of a bundle \(a folder wi"
    ):
        ImportModel(path=str(tmp_path / "model"))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"model\.pkl is neither manifest\.json nor an ONNX file\n.*export the model"):
        ImportModel(path=str(tmp_path / "model.pkl"))
    with pytest.raises(InputError, match="a model is one file"):
        ImportModel(path=str(tmp_path / "m*"))
    with pytest.raises(InputError, match="is not a bundle"):
        ImportModel(path=str(tmp_path / "manifest.json"))
    with pytest.raises(InputError, match="a bundle has its preprocessing"):
        ImportModel(graph, path=str(tmp_path / "manifest.json"))
    with pytest.raises(InputError, match=r"model\.onnx has neither preprocessing nor a label"):
        ImportModel(path=str(file))
    with pytest.raises(InputError, match=r"the transform has no output 'lte'"):
        ImportModel(graph, path=str(file), label="lte")
    other = saved(tmp_path / "other.onnx", "xs")
    with pytest.raises(InputError, match=r"other\.onnx has the input 'xs', which .* not give\n.*did you mean 'x'"):
        ImportModel(graph, path=str(other), label="late")
    text = TransformGraph.new()
    analyze(lambda columns: {"x": columns["a"], "late": columns["b"]}, {"a": ["w"], "b": [1.0]}).save(text.content)
    with pytest.raises(InputError, match="the input 'x', which the preprocessing gives as string"):
        ImportModel(text, path=str(file), label="late")
    trees = saved(tmp_path / "other.onnx", "x", "Binarizer", "ai.onnx.ml")
    with pytest.raises(InputError, match=r"ai\.onnx\.ml\.Binarizer, which this release does not know"):
        ImportModel(graph, path=str(trees), label="late")
    (tmp_path / "broken.onnx").write_bytes(b"no protobuf")
    with pytest.raises(InputError, match=r"broken\.onnx is not an ONNX model"):
        ImportModel(graph, path=str(tmp_path / "broken.onnx"), label="late")
