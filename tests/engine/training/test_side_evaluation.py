"""Trainer with an evaluator beside it: what that measures comes to the record, and whoever is killed, nobody hangs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from drivetrain import data, engine
from drivetrain.components import side_evaluation
from drivetrain.components.checkpoint_evaluator import evaluate_checkpoints
from drivetrain.components.side_evaluation import SideEvaluation
from drivetrain.components.trainer import Trainer
from drivetrain.components.training_job import TrainingJob
from drivetrain.console.cli import cli
from drivetrain.engine import Callback, EpochRecord, Model, Trained, TrainingRun
from drivetrain.engine.training.evaluations import CheckpointEvaluation, EvaluationLog
from drivetrain.errors import InputError
from drivetrain.metadata import Examples, TransformGraph
from drivetrain.pipelines import FunctionRef, current
from drivetrain.pipelines.project.context import LaunchContext, enter
from drivetrain.pipelines.project.metrics import Metrics

pytestmark = pytest.mark.engine


def preprocess(columns: Any) -> dict[str, Any]:
    return {"x": engine.ops.z_score(columns["x"]), "y": engine.ops.cast(columns["y"], "float32")}


def train(run: TrainingRun, *callbacks: Callback, **options: Any) -> Trained:
    import jax.numpy as jnp
    import optax

    return run.fit(
        Model(lambda key: {"w": jnp.zeros(()), "b": jnp.zeros(())}, lambda p, f: f["x"] * p["w"] + p["b"]),
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        metrics={"mae": lambda output, batch: jnp.abs(output - batch["y"]).mean()},
        predict=lambda output: {"predicted": output},
        optimizer=optax.adam(0.05),
        label="y",
        callbacks=callbacks,
        **options,
    )


def train_by_eval_loss(run: TrainingRun) -> Trained:
    return train(run, keep_best="eval_loss")


def train_by_loss(run: TrainingRun) -> Trained:
    return train(run, keep_best="loss")


def train_by_hand(run: TrainingRun) -> Trained:
    assert next(run.batches())["x"].shape == (run.batch_size,)
    return Trained({"w": np.float32(2)}, lambda p, f: f["x"] * p["w"], lambda output: {"predicted": output}, "y")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, problem: ModuleType) -> tuple[Examples, TransformGraph]:
    """Transformed examples, 4 batches of 50 to train on and 2 to measure, and the graph."""
    random = np.random.default_rng(0)

    def table(rows: int) -> pa.Table:
        x = random.normal(size=rows)
        return pa.table({"x": x, "y": 3 * x + 1})

    content = problem.write(tmp_path_factory.mktemp("beside") / "raw", {"train": table(200), "eval": table(100)})
    transformed: tuple[Examples, TransformGraph] = problem.transformed(content, preprocess)
    return transformed


@contextmanager
def launch(folder: Path, notes: list[str]) -> Iterator[Metrics]:
    metrics = Metrics()
    leave = enter(LaunchContext(work=folder, note=notes.append, metrics=metrics, printed=lambda text, last: None))
    try:
        yield metrics
    finally:
        leave()


def history(model: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((model.extra / "history.json").read_text())
    return body


def test_what_is_measured_elsewhere_is_in_the_record(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    notes: list[str] = []
    lines: list[str] = []
    options: dict[str, Any] = {"fn": train_by_loss, "epochs": 3, "batch_size": 50}
    with launch(tmp_path / "alone", notes) as expected:
        alone = Trainer(*inputs, **options)
    folder = tmp_path / "be side"
    thread = threading.Thread(target=evaluate_checkpoints, args=(folder, 60.0, lines.append))
    thread.start()
    wait_for("its first line", lambda: lines)  # before there is a training
    with launch(folder, notes) as recorded:
        model = Trainer(*inputs, **options, evaluator="elsewhere")
    thread.join(60)
    assert not thread.is_alive()
    assert history(model)["epochs"] == history(alone)["epochs"]  # to the bit
    ours: Any = recorded.properties
    theirs: Any = expected.properties
    assert ours["metrics"] == theirs["metrics"]
    for name in ("loss", "eval_loss", "mae"):
        assert {tuple(point) for point in theirs["metric_steps"][name]} <= {
            tuple(point) for point in ours["metric_steps"][name]
        }
    command = f"drivetrain evaluate-checkpoints '{folder}'"
    assert sum(note.endswith(command) for note in notes) == 1
    assert any(note.startswith("evaluator: checkpoint of step 12: eval loss") for note in notes)
    assert lines[0] == f"waiting 60 s at most for a training in {folder}, which does not exist yet"
    assert any(line.startswith("checkpoint of step 12: eval loss") for line in lines)
    kept = (model.extra / "logs" / "eval" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in kept if json.loads(line)["step"] % 4 == 0] == [4, 8, 12]


def test_no_evaluator_elsewhere_is_noted(
    inputs: tuple[Examples, TransformGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_evaluation, "_PATIENCE", 0.0)
    notes: list[str] = []
    with launch(tmp_path, notes):
        model = Trainer(*inputs, fn=train, epochs=2, batch_size=50, evaluator="elsewhere")
    assert any("the last checkpoint was not evaluated: no evaluator is at work in" in note for note in notes)
    assert notes[-1] == "not evaluated: epoch 1, 2, with no evaluator at work"
    assert [epoch["eval_loss"] for epoch in history(model)["epochs"]] == [None, None]


def test_what_is_measured_belongs_to_its_epoch_though_one_before_was_rolled_back(tmp_path: Path) -> None:
    job = TrainingJob(
        fn=FunctionRef(None, "model:train"), examples=tmp_path, graph=tmp_path, base_model=None, hyperparameters={},
        epochs=3, batch_size=50, seed=0, strategy="single", train_split="train", eval_split="eval",
    )  # fmt: skip
    log = EvaluationLog(tmp_path / "logs")
    for step in (4, 8, 12):  # nothing was left of the second epoch, whose end has a checkpoint all the same
        log.append(CheckpointEvaluation(step, step / 100, last=step == 12))
    notes: list[str] = []
    with launch(tmp_path, notes), SideEvaluation(current(), job, "elsewhere") as evaluation:
        evaluation.on_train_begin(None)  # type: ignore[arg-type]  # it looks at nothing
        epochs = evaluation.finish([EpochRecord(1, 4, 0.5), EpochRecord(3, 4, 0.5)])
    assert [(epoch.epoch, epoch.eval_loss) for epoch in epochs] == [(1, 0.04), (3, 0.12)]
    assert not [note for note in notes if "not evaluated" in note]


def test_a_loop_of_ones_own_has_nothing_to_evaluate(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    notes: list[str] = []
    with launch(tmp_path, notes):
        Trainer(*inputs, fn=train_by_hand, batch_size=50, evaluator="elsewhere")
    assert notes[-1] == "nothing was evaluated: an evaluator measures what `run.fit` saves, which did not run"
    with pytest.raises(InputError, match="an evaluator trains nothing"):
        evaluate_checkpoints(tmp_path, 0.0, notes.append)


def test_what_is_refused(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no evaluator 'proces'"):
        Trainer(*inputs, fn=train, evaluator="proces")
    with pytest.raises(InputError, match="eval_split is None"):
        Trainer(*inputs, fn=train, evaluator="process", eval_split=None)
    with launch(tmp_path, []), pytest.raises(InputError, match="keep_best goes by 'eval_loss'"):
        Trainer(*inputs, fn=train_by_eval_loss, batch_size=50, evaluator="elsewhere")
    (damaged := tmp_path / "damaged").mkdir()
    (damaged / "evaluator.json").write_text('{"fn": [null]}')
    for folder, message in (
        (damaged, "evaluator.json describes no training: ValueError"),
        (tmp_path / "other", "no training with an evaluator has begun in"),
        (tmp_path, "no training has saved a checkpoint in"),
        ("s3://bucket/work", "s3://… is not a folder of this machine"),
    ):
        ended = CliRunner().invoke(cli, ["evaluate-checkpoints", str(folder), "--timeout", "0"])
        assert (ended.exit_code, message in ended.stderr) == (2, True)


def wait_for(what: str, look: Any, seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value


def holder(lock: Path) -> int | None:
    """The process that wrote its number into a lock."""
    words = lock.read_text().split() if lock.exists() else []
    return int(words[1]) if len(words) == 4 else None


def is_alive(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def train_in_the_trainer_alone(run: TrainingRun) -> Trained:
    if run.role == "evaluator":
        raise ValueError("no evaluator is wanted")
    return train(run)


class KillsTheEvaluator(Callback):
    """After the first epoch was measured; the steps after it begin when the process is dead."""

    def on_step_end(self, progress: Any, step: int, loss: float) -> None:
        if step == 5 and not (progress.log_dir / "killed").exists():
            log = EvaluationLog(progress.log_dir)
            assert wait_for("the first evaluation", log.new)[0].step == 4
            process = holder(progress.log_dir.parent / "evaluator.lock")
            assert process is not None
            os.kill(process, signal.SIGKILL)
            wait_for("its end", lambda: not is_alive(process))
            (progress.log_dir / "killed").touch()


def train_and_kill_the_evaluator(run: TrainingRun) -> Trained:
    return train(run, *([KillsTheEvaluator()] if run.role == "trainer" else []))


@pytest.mark.slow
def test_a_killed_evaluator_does_not_end_the_training(inputs: tuple[Examples, TransformGraph], tmp_path: Path) -> None:
    notes: list[str] = []
    with launch(tmp_path, notes):
        model = Trainer(*inputs, fn=train_and_kill_the_evaluator, epochs=3, batch_size=50, evaluator="process")
    assert any(note.startswith("the evaluator ended with code -9, and evaluates no more") for note in notes)
    losses = [epoch["eval_loss"] for epoch in history(model)["epochs"]]
    assert losses[0] > 0
    assert losses[1:] == [None, None]
    assert any(note == "not evaluated: epoch 2, 3, with no evaluator at work" for note in notes)


PIPELINE = """
import drivetrain as dt
from drivetrain.components import ExampleGen, SchemaGen, StatisticsGen, Trainer, Transform


@dt.pipeline
def beside() -> None:
    examples = ExampleGen("rows.csv", splits={"train": 2, "eval": 1})
    transform = Transform(examples, SchemaGen(StatisticsGen(examples)), fn="model:preprocess")
    Trainer(transform.examples, transform.graph, fn="model:train", epochs=3, batch_size=50, evaluator="process")
"""
MODEL = """
import os
import signal
import time
from pathlib import Path

import jax.numpy as jnp
import optax
from drivetrain.console.cli import cli
from drivetrain.engine import Callback, Model, ops


def preprocess(columns):
    return {"x": ops.z_score(columns["x"]), "y": ops.cast(columns["y"], "float32")}


class Killed(Callback):
    def on_epoch_end(self, progress, record):
        killed = Path(__file__).with_name("killed")
        if record.epoch == 2 and not killed.exists():
            begin = time.monotonic()
            while not (progress.log_dir / "eval" / "evaluations.jsonl").exists():
                if time.monotonic() - begin > 120:
                    raise TimeoutError("the evaluator measured nothing")
                time.sleep(0.05)
            killed.write_text(str(progress.log_dir.parent))
            os.kill(os.getpid(), signal.SIGKILL)


def train(run):
    model = Model(lambda key: {"w": jnp.zeros(()), "b": jnp.zeros(())}, lambda p, f: f["x"] * p["w"] + p["b"])
    return run.fit(
        model,
        loss=lambda output, batch: jnp.mean((output - batch["y"]) ** 2),
        predict=lambda output: {"predicted": output},
        optimizer=optax.adam(0.05),
        label="y",
        callbacks=[Killed()],
    )
"""


@pytest.mark.slow
def test_why_an_evaluator_failed_is_noted_with_its_cause(
    inputs: tuple[Examples, TransformGraph], tmp_path: Path
) -> None:
    notes: list[str] = []
    with launch(tmp_path, notes):
        Trainer(*inputs, fn=train_in_the_trainer_alone, epochs=2, batch_size=50, evaluator="process")
    end = next(note for note in notes if note.startswith("the evaluator ended with code 2, and evaluates no more"))
    assert "the training goes on: error: " in end
    assert "no evaluator is wanted" in end


def write_project(folder: Path) -> None:
    x = np.random.default_rng(0).normal(size=600)
    folder.mkdir(exist_ok=True)
    pd.DataFrame({"x": x, "y": 3 * x + 1}).to_csv(folder / "rows.csv", index=False)
    (folder / "pipeline.py").write_text(PIPELINE)
    (folder / "model.py").write_text(MODEL)


@pytest.mark.slow
def test_a_run_of_another_root_and_artifacts_behind_a_url_is_evaluated_from_another_folder(tmp_path: Path) -> None:
    """By the line that Trainer prints, in a process that knows of neither."""
    project, root, elsewhere = tmp_path / "project", tmp_path / "root of runs", tmp_path / "elsewhere"
    write_project(project)
    elsewhere.mkdir()
    (project / "pipeline.py").write_text(PIPELINE.replace('"process"', '"elsewhere"'))
    (project / "killed").touch()  # nobody is
    options = ["--root", str(root), "--artifacts", (tmp_path / "behind").as_uri()]
    command = [sys.executable, "-m", "drivetrain", "run", str(project), *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        printed = next(line for line in run.stdout if "to evaluate its checkpoints elsewhere: " in line)
        words = shlex.split(printed.partition("elsewhere: drivetrain ")[2])
        evaluator = [sys.executable, "-P", "-m", "drivetrain", *words, "--timeout", "60", "--json"]
        ended = subprocess.run(evaluator, cwd=elsewhere, capture_output=True, text=True, check=False)
        assert run.stdout.read()
    assert (ended.returncode, run.returncode) == (0, 0), ended.stderr
    assert list(elsewhere.iterdir()) == []
    measured = {each["step"]: each["eval_loss"] for each in json.loads(ended.stdout)["evaluations"]}
    store = dt.open(root=root)
    epochs = history(store.artifact("Trainer"))["epochs"]
    steps = np.cumsum([epoch["steps"] for epoch in epochs])
    assert [epoch["eval_loss"] for epoch in epochs] == [measured[step] for step in steps]


@pytest.mark.slow
def test_a_killed_training_ends_its_evaluator_and_the_next_attempt_goes_on(tmp_path: Path) -> None:
    write_project(tmp_path)
    drivetrain, root = [sys.executable, "-m", "drivetrain"], ["--root", str(tmp_path / ".drivetrain")]
    command = [*drivetrain, "run", str(tmp_path), "--runner", "process", *root]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert killed.returncode == 1, killed.stderr
    assert (tmp_path / "killed").exists(), killed.stderr
    work = Path((tmp_path / "killed").read_text())
    process = holder(work / "evaluator.lock")
    assert process is not None
    wait_for("the evaluator's end", lambda: not is_alive(process))
    resumed = subprocess.run([*drivetrain, "resume", *root], capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    store = dt.open(root=tmp_path / ".drivetrain")
    model = store.artifact("Trainer")
    weights = engine.Bundle.load(model.content)
    losses = [epoch["eval_loss"] for epoch in history(model)["epochs"]]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    examples = store.artifact("ExampleGen").content
    parts = [examples / part.path for part in data.Manifest.read(examples).parts("eval")]
    rows = pa.concat_tables([pq.read_table(part, partitioning=None) for part in parts])
    rows = rows.slice(0, len(rows) // 50 * 50).combine_chunks()
    assert len(rows) >= 100
    predicted = weights.run("predict", rows.select(["x"]).to_batches()[0])["predicted"]
    assert losses[-1] == pytest.approx(np.mean((predicted - rows["y"].to_numpy()) ** 2), rel=1e-4)
    lines = (model.extra / "logs" / "eval" / "evaluations.jsonl").read_text().splitlines()
    assert [json.loads(line)["last"] for line in lines][-1] is True
    assert len({json.loads(line)["step"] for line in lines}) == len(lines)  # nothing is measured twice
