"""The evaluator beside a training: what it measures is what a training without it does, bit by bit, and NumPy too."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import (
    Callback,
    CheckpointPolicy,
    EarlyStopping,
    Model,
    Rollback,
    TensorBoard,
    Trained,
    TrainingProgress,
    TrainingRun,
    metrics,
)
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.training.checkpoint import Checkpoints
from drivetrain.engine.training.evaluations import CheckpointEvaluation, EvaluationLog
from drivetrain.engine.training.work_lock import is_at_work, locked
from drivetrain.errors import DrivetrainError, InputError

pytestmark = pytest.mark.engine

BATCH = 64


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluators in this process."""
    monkeypatch.setattr("drivetrain.engine.training.evaluator._POLL", 0.02)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> Path:
    """y = 3 x + 1 with noise."""
    random = np.random.default_rng(0)

    def table(rows: int) -> pa.Table:
        x = random.normal(size=rows).astype(np.float32)
        return pa.table({"x": x, "y": (3 * x + 1 + random.normal(size=rows) / 4).astype(np.float32)})

    folder: Path = problem.write(tmp_path_factory.mktemp("data"), {"train": table(4 * BATCH), "eval": table(3 * BATCH)})
    return folder


def run_in(work: Path, content: Path) -> TrainingRun:
    """The training beside which an evaluator works: 4 steps in each of 3 epochs."""
    specs = {name: FieldSpec("float32") for name in ("x", "y")}
    return TrainingRun(
        specs, content, epochs=3, batch_size=BATCH, depth=3, work_dir=work, log_dir=work / "logs", role="trainer"
    )


@pytest.fixture
def run(content: Path, tmp_path: Path) -> TrainingRun:
    return run_in(tmp_path / "work", content)


@pytest.fixture(scope="module")
def trained_work(content: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the training leaves, done once."""
    work = tmp_path_factory.mktemp("trained") / "work"
    fit(run_in(work, content))
    return work


@pytest.fixture
def trained(run: TrainingRun, trained_work: Path) -> None:
    """The run's folder where its training has ended."""
    assert run.work_dir is not None
    shutil.copytree(trained_work, run.work_dir)


LINE = Model(
    init=lambda key: {"w": jnp.zeros(()), "b": jnp.zeros(())},
    apply=lambda params, features: params["w"] * features["x"] + params["b"],
)


def fit(run: TrainingRun, model: Model = LINE, **options: Any) -> Trained:
    settings: dict[str, Any] = {"ema": 0.5, **options}
    return run.fit(
        model,
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        metrics={
            "mae": lambda output, batch: jnp.abs(output - batch["y"]).mean(),
            "r2": metrics.r2(lambda output, batch: (output, batch["y"])),
            "none": lambda output, batch: output.sum() * jnp.nan,
        },
        predict=lambda output: {"predicted": output},
        optimizer=optax.adam(0.1),
        label="y",
        **settings,
    )


def evaluator(run: TrainingRun, notes: list[str] | None = None) -> TrainingRun:
    note = pytest.fail if notes is None else notes.append
    return replace(run, role="evaluator", patience=0.0, note=note)


def measured(run: TrainingRun) -> list[CheckpointEvaluation]:
    return EvaluationLog(run.log_dir).new()


def values(epoch: Any) -> dict[str, float]:
    """By name, of an epoch's record or of a checkpoint's evaluation."""
    return {"eval_loss": epoch.eval_loss, **epoch.metrics}


def test_each_checkpoint_is_measured_as_a_training_alone_does(run: TrainingRun) -> None:
    alone = fit(replace(run, role="alone", work_dir=None))
    trained = fit(run)
    assert [epoch.eval_loss for epoch in trained.history] == [None] * 3
    assert all(epoch.metrics == {} for epoch in trained.history)
    assert trained.params == alone.params
    notes: list[str] = []
    last = fit(evaluator(run, notes))
    assert last.params == alone.params
    evaluations = measured(run)
    assert [evaluation.step for evaluation in evaluations] == [4, 8, 12]
    assert [evaluation.last for evaluation in evaluations] == [False, False, True]
    for evaluation, epoch in zip(evaluations, alone.history, strict=True):
        np.testing.assert_equal(values(evaluation), values(epoch))  # to the bit, NaN where it is NaN
    assert [note.partition(":")[0] for note in notes] == [f"checkpoint of step {step}" for step in (4, 8, 12)]
    assert f"eval loss {alone.history[0].eval_loss:.5f}, mae " in notes[0]

    batches = list(run.batches("eval"))
    x, y = (np.concatenate([batch[name] for batch in batches]).astype(np.float64) for name in ("x", "y"))
    errors = x * last.params["w"] + last.params["b"] - y
    assert evaluations[-1].eval_loss == pytest.approx((errors**2).mean(), rel=1e-5)
    assert evaluations[-1].metrics["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-5)
    assert evaluations[-1].metrics["r2"] == pytest.approx(1 - (errors**2).mean() / y.var(), rel=1e-4)

    assert fit(evaluator(run)) is not None  # all is measured: it ends at once, and measures nothing again
    assert len(measured(run)) == 3


def test_state_frozen_parameters_and_averages_are_measured_as_they_are_exported(run: TrainingRun) -> None:
    def train_centred(params: Any, state: Any, features: Any, key: Any) -> Any:
        mean = 0.9 * state["mean"] + 0.1 * features["x"].mean() + 0.01
        return params["w"] * (features["x"] - mean) + params["b"], {"mean": mean}

    centred = Model(
        lambda key: {"params": {"w": jnp.zeros(()), "b": jnp.ones(())}, "state": {"mean": jnp.zeros(())}},
        lambda variables, features: (
            variables["params"]["w"] * (features["x"] - variables["state"]["mean"]) + variables["params"]["b"]
        ),
        train_centred,
    )
    options = {"freeze": ["b"], "ema": 0.9, "precision": "bfloat16"}
    alone = fit(replace(run, role="alone", work_dir=None), centred, **options)
    fit(run, centred, **options)
    last = fit(evaluator(run, []), centred, **options)
    assert last.params == alone.params
    assert last.params["params"]["b"] == 1.0
    assert last.params["state"]["mean"] != 0.0
    for evaluation, epoch in zip(measured(run), alone.history, strict=True):
        np.testing.assert_equal(values(evaluation), values(epoch))


def test_lines_are_json_and_what_is_torn_goes(tmp_path: Path) -> None:
    log, reader = EvaluationLog(tmp_path), EvaluationLog(tmp_path)
    assert reader.new() == []
    first = CheckpointEvaluation(8, 0.1 + 0.2, {"auc": float("nan"), "far": float("inf")})
    log.append(first)
    assert json.loads(log.path.read_bytes(), parse_constant=pytest.fail)["metrics"] == {"auc": None, "far": None}
    with log.path.open("ab") as file:
        file.write(b'{"step": 9, "eval')  # as a killed evaluator leaves it
    (evaluation,) = reader.new()
    assert evaluation.eval_loss == 0.1 + 0.2
    assert reader.new() == []
    log.append(CheckpointEvaluation(12, 1.5, last=True))
    assert reader.new() == [CheckpointEvaluation(12, 1.5, last=True)]
    assert [evaluation.step for evaluation in EvaluationLog(tmp_path).new()] == [8, 12]


@pytest.mark.usefixtures("trained")
def test_a_damaged_line_is_as_none(run: TrainingRun) -> None:
    """The training reads the file too, and does not end for it; the checkpoint is measured again."""
    fit(evaluator(run, []))
    log = EvaluationLog(run.log_dir)
    lines = log.path.read_bytes().splitlines(keepends=True)
    for damaged in (b"\0" * 40 + b"\n", b'{"step": 8}\n', b"[]\n", b"\xff\n"):
        log.path.write_bytes(lines[0] + damaged + lines[2])
        assert [evaluation.step for evaluation in measured(run)] == [4, 12]
        fit(replace(run, role="trainer"))
    log.path.write_bytes(lines[0] + damaged)
    fit(evaluator(run, []))
    assert [evaluation.step for evaluation in measured(run)] == [4, 8, 12]


@pytest.mark.usefixtures("trained")
def test_a_full_disk_is_named_and_what_it_lacks_is_measured_again(run: TrainingRun, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    try:
        (small / "eval").mkdir()
        with suppress(OSError), (small / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        here = replace(run, log_dir=small)
        with pytest.raises(DrivetrainError, match=r"of step 4 could not be written to .*No space left .*\n.*make room"):
            fit(evaluator(here, []))
        (small / "fill").unlink()
        fit(evaluator(here, []))
        assert [evaluation.step for evaluation in measured(here)] == [4, 8, 12]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_it_works_while_the_training_does_and_ends_with_it(run: TrainingRun) -> None:
    """A thread stands for the other process: the training waits after each epoch until that epoch was measured."""
    log = EvaluationLog(run.log_dir)
    steps: list[int] = []

    class Waits(Callback):
        def on_step_end(self, progress: Any, step: int, loss: float) -> None:
            if step in (5, 9):  # the checkpoint of the epoch before is on its way
                deadline = time.monotonic() + 60
                while not steps or steps[-1] < step - 1:
                    assert time.monotonic() < deadline
                    steps.extend(evaluation.step for evaluation in log.new())
                    time.sleep(0.01)
                assert is_at_work(run.work_dir, "training")  # type: ignore[arg-type]

    notes: list[str] = []
    errors: list[Exception] = []

    def watch() -> None:
        try:
            fit(replace(evaluator(run, notes), patience=60.0), callbacks=[Waits()])
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=watch)
    thread.start()  # before there is a folder
    fit(run, callbacks=[Waits()])
    thread.join(60)
    assert errors == []
    assert {4, 8} <= set(steps)  # and where time or an eighth of the run asked for a checkpoint
    assert measured(run)[-1].last


def test_the_newest_ten_stay_until_they_are_measured(run: TrainingRun) -> None:
    long = replace(run, epochs=13)
    fit(long)
    assert run.work_dir is not None
    folder = run.work_dir / "checkpoints"
    assert Checkpoints(folder).steps() == [4 * epoch for epoch in range(4, 14)]
    fit(evaluator(long, []))
    assert [evaluation.step for evaluation in measured(run)] == [4 * epoch for epoch in range(4, 14)]
    for step in (44, 48, 52):
        shutil.rmtree(folder / str(step))
    fit(long)  # from step 40; what is measured goes, but for the newest two
    assert Checkpoints(folder).steps() == [48, 52]


def test_a_training_that_stopped_early_ends_the_evaluator(run: TrainingRun) -> None:
    long = replace(run, epochs=50)
    trained = fit(long, callbacks=[EarlyStopping("loss", patience=1, min_delta=1e9)])
    assert len(trained.history) == 2
    fit(evaluator(long, []), callbacks=[EarlyStopping("loss", patience=1, min_delta=1e9)])
    assert [(evaluation.step, evaluation.last) for evaluation in measured(run)] == [(4, False), (8, True)]


def test_one_that_stops_amid_an_epoch_is_measured_to_its_end(run: TrainingRun) -> None:
    class Stops(Callback):
        def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
            if step == 6:
                progress.stop("enough")

    every = CheckpointPolicy(keep_period=1)  # that of step 6 knows that the training is to stop
    fit(run, callbacks=[Stops()], checkpoints=every)
    fit(evaluator(run, []), callbacks=[Stops()], checkpoints=every)
    ends = [(evaluation.step, evaluation.last) for evaluation in measured(run)]
    assert ends == [(step, step == 8) for step in range(1, 9)]


@pytest.mark.usefixtures("trained")
def test_a_training_that_was_killed_ends_it_with_an_error(run: TrainingRun) -> None:
    assert run.work_dir is not None
    shutil.rmtree(run.work_dir / "checkpoints" / "12")  # as though it had been killed before
    with pytest.raises(DrivetrainError, match="no longer at work, and ended at step 8 of 12"):
        fit(evaluator(run, []))
    assert [evaluation.step for evaluation in measured(run)] == [4, 8]
    fit(run)  # it goes on
    fit(evaluator(run, []))
    assert [evaluation.step for evaluation in measured(run)] == [4, 8, 12]


def test_no_training_is_an_error(run: TrainingRun) -> None:
    with pytest.raises(DrivetrainError, match=r"no training has saved a checkpoint in .*work for 0 s"):
        fit(evaluator(run, []))


@pytest.mark.usefixtures("trained")
def test_a_checkpoint_that_is_damaged_or_goes_is_left_out(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.work_dir is not None
    folder = run.work_dir / "checkpoints"
    (folder / "9.orbax-checkpoint-tmp").mkdir()  # half-written, as orbax names it
    (record,) = (path for path in (folder / "4" / "record").iterdir() if b'"plan"' in path.read_bytes())
    text = record.read_bytes()
    record.write_bytes(text.replace(b'"skipped": 0', b'"skipped": 1'))
    assert record.read_bytes() != text  # and its digest is another now
    read = Checkpoints.read

    def goes(self: Checkpoints, step: int, like: Any) -> Any:
        if step == 8:
            shutil.rmtree(folder / "8")
        return read(self, step, like)

    monkeypatch.setattr(Checkpoints, "read", goes)
    notes: list[str] = []
    fit(evaluator(run, notes))
    assert [evaluation.step for evaluation in measured(run)] == [12]
    assert notes[0].startswith("checkpoint of step 12: eval loss")
    assert (folder / "4").is_dir()  # it is the training's to set aside


def test_what_cannot_be_read_is_noted_once(run: TrainingRun) -> None:
    run = replace(run, epochs=6)
    fit(run)
    assert run.work_dir is not None
    folder = run.work_dir / "checkpoints"
    shutil.rmtree(folder / "4" / "state")
    shutil.rmtree(folder / "24")
    notes: list[str] = []
    with pytest.raises(DrivetrainError, match="ended at step 20 of 24"):
        fit(evaluator(run, notes))
    assert [evaluation.step for evaluation in measured(run)] == [8, 12, 16, 20]
    assert sum("the checkpoint of step 4 cannot be read, and is not measured: " in note for note in notes) == 1
    fit(run)  # it goes on from step 20
    shutil.rmtree(folder / "24" / "state")
    with pytest.raises(DrivetrainError, match=r"the last checkpoint in .*, of step 24, cannot be read"):
        fit(replace(evaluator(run, notes), patience=1e9))
    assert len(measured(run)) == 4


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keep_best": "eval_loss"}, "keep_best goes by 'eval_loss'"),
        ({"callbacks": [EarlyStopping("mae", mode="min")]}, "EarlyStopping goes by 'mae'"),
        ({"checkpoints": CheckpointPolicy(best=("r2", "max"))}, "best of the checkpoints goes by 'r2'"),
    ],
)
def test_what_goes_by_the_eval_split_is_refused(run: TrainingRun, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named) as raised:
        fit(run, **options)
    assert "leave `evaluator` out" in str(raised.value)
    assert fit(run, keep_best="loss").kept_epoch == 3
    fit(evaluator(run, []), keep_best="loss")
    assert measured(run)[-1].last


@pytest.mark.usefixtures("trained")
def test_other_trainings_are_refused(run: TrainingRun) -> None:
    with pytest.raises(InputError, match="has no work_dir"):
        fit(replace(run, work_dir=None))
    with pytest.raises(InputError, match="nothing to evaluate on"):
        fit(replace(evaluator(run, []), eval_split=None))
    with pytest.raises(InputError, match="an evaluator trains nothing"):
        evaluator(run, []).batches()
    with pytest.raises(InputError, match="belong to another training"):
        fit(replace(evaluator(run, []), seed=8))
    assert run.work_dir is not None
    with (
        locked(run.work_dir, pytest.fail, "evaluator"),
        pytest.raises(DrivetrainError, match="another evaluator uses the work folder"),
    ):
        fit(evaluator(run, []))


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("model", "options", "named"),
    [
        (LINE, {"ema": None}, "its 'ema.b' is float32 [], here not there"),
        (LINE, {"rollback": Rollback()}, "its 'good.ema.b' is not there, here float32 []"),
        (replace(LINE, init=lambda key: {"w": jnp.zeros(1), "b": jnp.zeros(())}), {}, "'ema.w' is float32 [], here fl"),
    ],
)
def test_code_of_another_training_is_named_as_the_cause(
    run: TrainingRun, model: Model, options: dict[str, Any], named: str
) -> None:
    """The checkpoints are whole, and stay: neither does an evaluator look at the disk, nor a training begin anew."""
    for each in (evaluator(run), run):
        with pytest.raises(InputError, match="is of another training: ") as raised:
            fit(each, replace(model, apply=lambda params, features: params["w"].sum() * features["x"]), **options)
        assert named in str(raised.value)
    assert run.work_dir is not None
    assert Checkpoints(run.work_dir / "checkpoints").steps() == [4, 8, 12]


def test_event_files_lie_beside_those_of_the_training(run: TrainingRun) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(run, callbacks=[TensorBoard(histograms=False, graph=False)])
    fit(evaluator(run, []), callbacks=[TensorBoard(histograms=False, graph=False)])

    def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
        events = EventAccumulator(str(folder))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars(tag)]

    assert [step for step, _ in scalars(run.log_dir, "epoch/loss")] == [4, 8, 12]
    for name in ("eval_loss", "mae"):
        expected = [(each.step, float(np.float32(values(each)[name]))) for each in measured(run)]
        assert scalars(run.log_dir / "eval", f"epoch/{name}") == expected


def test_a_lock_is_seen_and_a_look_refuses_nobody(tmp_path: Path) -> None:
    assert not is_at_work(tmp_path / "not there", "training")
    with locked(tmp_path, pytest.fail):
        assert is_at_work(tmp_path, "training")
        assert not is_at_work(tmp_path, "evaluator")
    assert not is_at_work(tmp_path, "training")
    with (tmp_path / "training.at_work").open("rb") as look:  # one under way
        fcntl.flock(look, fcntl.LOCK_SH)
        with ThreadPoolExecutor(1) as thread, ExitStack() as ending:
            beginning = thread.submit(ending.enter_context, locked(tmp_path, pytest.fail))
            with pytest.raises(TimeoutError):
                beginning.result(0.05)
            fcntl.flock(look, fcntl.LOCK_UN)
            beginning.result(60)
