"""The event files of `TensorBoard`, as TensorBoard itself reads them."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Callback, EpochRecord, Model, TensorBoard, Trained, TrainingProgress, TrainingRun
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import DrivetrainError, InputError

pytest.importorskip("tensorboardX")
pytestmark = pytest.mark.engine

ROWS, BATCH = 256, 32
CUTS = ["Fair", "Good", "with\ttab", ""]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    random = np.random.default_rng(0)

    def table(rows: int) -> pa.Table:
        cut = random.integers(0, len(CUTS), rows, dtype=np.int32)
        return pa.table({"cut": cut, "y": (cut / 2 + random.normal(size=rows)).astype(np.float32)})

    folder: Path = problem.write(tmp_path_factory.mktemp("boards"), {"train": table(ROWS), "eval": table(BATCH)})
    return folder


def training(content: Path, logs: Path) -> TrainingRun:
    """8 steps in each of 3 epochs."""
    specs = {"cut": FieldSpec("int32", size=len(CUTS)), "y": FieldSpec("float32")}
    return TrainingRun(specs, content, epochs=3, batch_size=BATCH, depth=4, log_dir=logs, hyperparameters={"rate": 0.1})


@pytest.fixture
def run(content: Path, tmp_path: Path) -> TrainingRun:
    return training(content, tmp_path / "logs")


def embed(key: jax.Array) -> dict[str, Any]:
    return {"cut": {"embedding": jax.random.normal(key, (len(CUTS), 3))}, "out": jnp.ones(3)}


def apply(params: Mapping[str, Any], features: Mapping[str, jax.Array]) -> jax.Array:
    with jax.named_scope("lookup"):
        vectors = params["cut"]["embedding"][features["cut"]]
    output: jax.Array = jax.nn.relu(vectors) @ params["out"]
    return output


def fit(run: TrainingRun, *callbacks: Callback, init: Callable[[jax.Array], dict[str, Any]] = embed) -> Trained:
    return run.fit(
        Model(init, apply),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.sgd(0.05),
        label="y",
        metrics={"mae": lambda output, batch: jnp.abs(output - batch["y"]).mean()},
        callbacks=callbacks,
    )


def read(folder: Path) -> Any:
    """All events of a folder, by TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0, "images": 0})
    events.Reload()
    return events


class Pictures(Callback):
    """Adds an image of its own in each epoch."""

    def __init__(self, board: TensorBoard) -> None:
        self.board = board

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        picture = np.zeros((3, 5, 7), np.float32)
        self.board.writer.add_image("predictions", picture, record.epoch)


@pytest.fixture(scope="module")
def whole(content: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trained, Path]:
    """A training that wrote all there is, and where."""
    folder = tmp_path_factory.mktemp("whole")
    board = TensorBoard(every=2, embeddings={"cut.embedding": CUTS})
    return fit(training(content, folder), board, Pictures(board)), folder


def test_tensorboard_reads_what_a_training_wrote(whole: tuple[Trained, Path]) -> None:
    trained, folder = whole
    events = read(folder)
    losses = events.Scalars("step/loss")
    assert [point.step for point in losses] == list(range(2, 25, 2))
    curve = dict(trained.curve)
    assert [point.value for point in losses] == pytest.approx([curve[point.step] for point in losses])
    for name, values in {
        "loss": [epoch.loss for epoch in trained.history],
        "eval_loss": [epoch.eval_loss for epoch in trained.history],
        "mae": [epoch.metrics["mae"] for epoch in trained.history],
    }.items():
        points = events.Scalars(f"epoch/{name}")
        assert [point.step for point in points] == [8, 16, 24]
        assert [point.value for point in points] == pytest.approx(values, rel=1e-6)

    histograms = events.Histograms("parameters/cut/embedding")
    assert [histogram.step for histogram in histograms] == [8, 16, 24]
    assert histograms[-1].histogram_value.num == len(CUTS) * 3
    assert histograms[-1].histogram_value.sum == pytest.approx(trained.params["cut"]["embedding"].sum(), rel=1e-5)
    assert [(image.step, image.width, image.height) for image in events.Images("predictions")] == [
        (1, 7, 5), (2, 7, 5), (3, 7, 5),
    ]  # fmt: skip
    settings = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| rate | 0.1 |" in settings
    assert "| batch_size | 32 |" in settings


def test_the_graph_is_connected_from_inputs_to_output(whole: tuple[Trained, Path]) -> None:
    nodes = {node.name: node for node in read(whole[1]).Graph().node}
    assert {"features/cut", "params/cut/embedding", "params/out"} <= nodes.keys()
    assert any(name.startswith("lookup/gather") for name in nodes)
    (last,) = [name for name, node in nodes.items() if node.op == "dot_general"]
    reached, waiting = set[str](), [last]
    while waiting:
        name = waiting.pop().split(":")[0]
        reached.add(name)
        waiting += [source for source in nodes[name].input if source.split(":")[0] not in reached]
    assert {"features/cut", "params/cut/embedding", "params/out"} <= reached
    assert [dim.size for dim in nodes["params/out"].attr["_output_shapes"].list.shape[0].dim] == [3]


def test_hyperparameters_stand_beside_metrics(whole: tuple[Trained, Path]) -> None:
    from tensorboard.plugins.hparams import metadata

    contents = read(whole[1]).PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(contents[metadata.SESSION_START_INFO_TAG])
    assert start.hparams["rate"].number_value == 0.1
    assert start.hparams["precision"].string_value == "float32"
    experiment = metadata.parse_experiment_plugin_data(contents[metadata.EXPERIMENT_TAG])
    assert {info.name.tag for info in experiment.metric_infos} == {"epoch/loss", "epoch/eval_loss", "epoch/mae"}


def test_embeddings_have_a_label_for_each_row(whole: tuple[Trained, Path]) -> None:
    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    trained, folder = whole
    config = text_format.Parse((folder / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    vectors = np.loadtxt(folder / embedding.tensor_path, delimiter="\t")
    np.testing.assert_allclose(vectors, trained.params["cut"]["embedding"], rtol=1e-6)
    labels = (folder / embedding.metadata_path).read_text().splitlines()
    assert labels == ["Fair", "Good", "with tab", "(empty)"]


def test_an_embedding_of_a_model_with_a_state_has_the_name_of_its_parameter(run: TrainingRun) -> None:
    def train(params: Any, state: Any, features: Any, key: jax.Array) -> Any:
        return apply(params, features), state

    model = Model(
        lambda key: {"params": embed(key), "state": {"steps": jnp.zeros(())}},
        lambda variables, features: apply(variables["params"], features),
        train,
    )
    columns = {"cut": CUTS, "rank": range(len(CUTS))}
    board = TensorBoard(histograms=False, graph=False, embeddings={"cut.embedding": columns})
    trained = run.fit(
        model,
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.sgd(0.05),
        label="y",
        callbacks=[board],
    )
    (vectors,) = run.log_dir.rglob("tensors.tsv")
    np.testing.assert_allclose(
        np.loadtxt(vectors, delimiter="\t"), trained.params["params"]["cut"]["embedding"], rtol=1e-6
    )
    labels = vectors.with_name("metadata.tsv").read_text().splitlines()
    assert labels == ["cut\trank", "Fair\t0", "Good\t1", "with tab\t2", "(empty)\t3"]


class Broken(Callback):
    """Fails at step 13, two steps behind a checkpoint."""

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        if step == 13:
            raise ValueError("no")


def test_a_resumed_training_leaves_one_curve(run: TrainingRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = int(time.time())
    monkeypatch.setattr(time, "time", lambda: float(second))  # files are named by the second

    def attempt(end: Callback) -> Trained:
        """As of another process."""
        board = TensorBoard(every=1, embeddings={"cut.embedding": None})
        return fit(dataclasses.replace(run, work_dir=tmp_path / "work", checkpoint_seconds=0), board, end)

    expected = fit(dataclasses.replace(run, log_dir=tmp_path / "other"))
    with pytest.raises(InputError, match=r"Broken\.on_step_end failed after step 13"):
        attempt(Broken())
    assert 0 < attempt(type("Broken", (Callback,), {})()).first_step < 13
    assert attempt(type("Broken", (Callback,), {})()).first_step  # the one before was killed in its export
    points = read(run.log_dir).Scalars("step/loss")
    assert [point.step for point in points] == list(range(1, 25))
    assert [point.value for point in points] == pytest.approx([value for _, value in expected.curve], rel=1e-6)
    assert (run.log_dir / "projector_config.pbtxt").read_text().count("embeddings {") == 1


def test_what_was_written_remains_of_a_training_that_fails(run: TrainingRun) -> None:
    with pytest.raises(InputError, match=r"Broken\.on_step_end failed after step 13"):
        fit(run, TensorBoard(every=1), Broken())
    assert [point.step for point in read(run.log_dir).Scalars("step/loss")] == list(range(1, 14))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every is 0"),
        ({"embeddings": {"cut.embeding": None}}, r"(?s)no parameter 'cut.embeding'.*'cut.embedding'"),
        ({"embeddings": {"out": None}}, r"'out' has shape \[3\]"),
        ({"embeddings": {"cut.embedding": ["one"]}}, "4 rows, and 1 labels"),
        ({"embeddings": {"cut.embedding": {"cut": CUTS, "rank": [1, 2]}}}, "4 rows, and 2 labels"),
    ],
)
def test_options_that_cannot_be(run: TrainingRun, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(run, TensorBoard(**options))


def test_the_writer_is_there_once_the_training_began() -> None:
    with pytest.raises(InputError, match="not begun"):
        _ = TensorBoard().writer


@pytest.mark.parametrize("value", [3e38, 1e20, 1.0])
def test_a_training_whose_parameters_have_gone_far_has_histograms(
    value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """tensorboardX has no bins beyond 1e20, and would end the training."""
    far = np.array([value, -value], np.float32)
    settings = {"big": 10**30, "table|cell\nline": "a|b", "none": None}
    progress = TrainingProgress(
        epochs=1, steps_per_epoch=1, monitored=("loss",), stop=lambda reason: None, log_dir=tmp_path,
        variables=lambda: {"far": far, "key": jax.random.key(0)}, settings=lambda: settings,
        traced=lambda: (jax.make_jaxpr(lambda x: x)(1.0), ["x"]),
    )  # fmt: skip
    board = TensorBoard()
    board.on_train_begin(progress)
    board.on_step_end(progress, 1, float("nan"))
    board.on_epoch_end(progress, EpochRecord(1, 1, 1e38, math.inf))
    board.close()
    assert not caplog.records  # tensorboardX's warning of NaN names nothing
    events = read(tmp_path)
    assert math.isnan(events.Scalars("step/loss")[0].value)
    assert events.Scalars("epoch/eval_loss")[0].value == math.inf
    (histogram,) = events.Histograms("parameters/far")
    assert histogram.histogram_value.num == 2
    (table,) = events.Tensors("settings/text_summary")
    text = table.tensor_proto.string_val[0].decode()
    assert "| big | 1000000000000000000000000000000 |" in text
    assert "| table\\|cell line | a\\|b |" in text


@pytest.mark.timeout(120)  # a thread that nobody waits for would be a training that never ends
def test_a_disk_that_fills_up_is_named_and_the_checkpoint_before_stays(
    whole: tuple[Trained, Path], content: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")

    class Fills(Callback):
        """Takes the rest of the disk after the first epoch, once."""

        def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
            if record.epoch == 1 and not (small / "filled").exists():
                with suppress(OSError), (small / "filled").open("wb", buffering=0) as file:
                    while True:
                        file.write(bytes(512))

    try:
        run = dataclasses.replace(
            training(content, small / "logs"), work_dir=tmp_path / "work", checkpoint_seconds=0.0, depth=1
        )
        with pytest.raises(
            DrivetrainError, match=r"TensorBoard's events could not be written to .*No space left"
        ) as caught:
            fit(run, TensorBoard(every=1, graph=False), Fills())
        assert "make room" in (caught.value.fix or "")
        (small / "filled").write_bytes(b"")
        notes: list[str] = []
        trained = fit(dataclasses.replace(run, note=notes.append), TensorBoard(every=1, graph=False), Fills())
        assert any(note.startswith("training resumed at step") for note in notes)
        assert trained.curve[-1] == whole[0].curve[-1]
        assert [point.step for point in read(small / "logs").Scalars("epoch/loss")] == [8, 16, 24]
        assert read(small / "logs").Scalars("step/loss")[-1].step == 24
    finally:
        subprocess.run(["umount", str(small)], check=True)
