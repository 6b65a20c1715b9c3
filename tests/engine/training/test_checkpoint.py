"""Checkpoints survive kill -9 and a damaged disk, and a resumed training ends with the same bits."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import Callback, EpochRecord, TrainingProgress, read_checkpoint
from drivetrain.engine.training.checkpoint import CheckpointPolicy, Checkpoints
from drivetrain.engine.training.training import TrainingRun
from drivetrain.engine.training.work_lock import is_at_work, locked
from drivetrain.errors import Canceled, DrivetrainError, InputError
from drivetrain.tests.forks import Fork, Forks

pytestmark = pytest.mark.engine


def state(value: float) -> dict[str, Any]:
    """A state with what an optimizer may hold: named tuples, scalars, integers, a PRNG key."""
    import jax
    import jax.numpy as jnp
    import optax

    params = {"dense": {"kernel": jnp.full((50, 8), value)}, "list": {0: jnp.ones(3), 1: jnp.zeros((0, 2))}}
    optimizer = optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(7)), optax.adam(1e-3))
    return {"params": params, "optimizer": optimizer.init(params)}


def same(a: Any, b: Any) -> bool:
    import jax
    import jax.numpy as jnp

    def plain(leaf: Any) -> Any:
        return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf

    assert str(jax.tree.structure(a)) == str(jax.tree.structure(b))
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(plain(x), plain(y)) and x.dtype == y.dtype for x, y in pairs)


def shapes(value: Any) -> Any:
    import jax

    return jax.eval_shape(lambda: value)


def test_nothing_there(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").restore(shapes(state(0.0))) is None
    assert not (tmp_path / "none").exists()


def test_round_trip_keeps_the_last_two(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for step in (10, 20, 30):
        checkpoints.save(step, state(step / 10), {"loss": step / 3})
    checkpoints.save(30, state(99.0), {"loss": 0.0})  # the same step again: the first stays
    checkpoints.close()
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [20, 30]
    found = Checkpoints(tmp_path).restore(shapes(state(0.0)))
    assert found is not None
    step, restored, record = found
    assert step == 30
    assert record == {"loss": 10.0}
    assert same(restored, state(3.0))


def damage(folder: Path, how: str) -> None:
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    if how == "flipped":
        data = bytearray(files[-1].read_bytes())
        data[len(data) // 2] ^= 1
        files[-1].write_bytes(data)
    elif how == "truncated":
        files[-1].write_bytes(files[-1].read_bytes()[: files[-1].stat().st_size // 2])
    elif how == "record changed":
        path = next(path for path in files if "record" in path.parts and b"loss" in path.read_bytes())
        path.write_bytes(path.read_bytes().replace(b'"loss": 2', b'"loss": 3').replace(b'"loss":2', b'"loss":3'))
    elif how == "record gone":
        shutil.rmtree(folder / "record")
    elif how == "state gone":
        shutil.rmtree(folder / "state")
    elif how == "empty":
        shutil.rmtree(folder)
        folder.mkdir()


@pytest.mark.parametrize("how", ["flipped", "truncated", "record changed", "record gone", "state gone", "empty"])
def test_a_damaged_checkpoint_falls_back(tmp_path: Path, how: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state(1.0), {"loss": 1})
    checkpoints.save(2, state(2.0), {"loss": 2})
    checkpoints.close()
    damage(tmp_path / "2", how)
    notes: list[str] = []
    again = Checkpoints(tmp_path, note=notes.append)
    restored = again.restore(shapes(state(0.0)))
    assert restored is not None
    assert restored[0] == 1
    assert restored[2] == {"loss": 1}
    assert same(restored[1], state(1.0))
    assert len(notes) == 1
    assert notes[0].startswith("checkpoint 2 cannot be used (")
    assert (tmp_path / "unusable-2").is_dir()
    again.save(2, state(2.0), {"loss": 2})
    again.close()
    newest = Checkpoints(tmp_path, note=notes.append).restore(shapes(state(0.0)))
    assert newest is not None
    assert newest[0] == 2
    assert len(notes) == 1


def test_due_at_eighths_and_after_a_while(tmp_path: Path) -> None:
    now = 0.0
    checkpoints = Checkpoints(tmp_path, seconds=30.0, clock=lambda: now)
    assert not any(checkpoints.due(step, 800) for step in range(0, 801, 50))  # no sooner than three times a save's cost
    now = 3.0
    assert next(step for step in range(0, 801, 50) if checkpoints.due(step, 800)) == 100
    assert not checkpoints.due(1, 10**6)
    now = 30.0
    assert checkpoints.due(1, 10**6)
    assert not checkpoints.due(0, 10**6)
    assert not checkpoints.due(10**6, 10**6)
    checkpoints.save(150, state(0.0), {})
    checkpoints.close()
    assert next(step for step in range(0, 801, 50) if checkpoints.due(step, 800)) == 200


def test_time_before_the_first_steps_makes_no_checkpoint_due(tmp_path: Path) -> None:
    """Compiling them: no checkpoint would save that."""
    now = 0.0
    checkpoints = Checkpoints(tmp_path, seconds=30.0, clock=lambda: now)
    now = 60.0
    assert not checkpoints.due(100, 800)
    now = 63.0
    assert checkpoints.due(200, 800)


def test_slow_saves_come_less_often(tmp_path: Path) -> None:
    """Each look at the clock takes 5 s, so a save takes 5 s."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 5.0
        return now

    checkpoints = Checkpoints(tmp_path, seconds=10.0, clock=clock)
    checkpoints.save(1, state(0.0), {})
    checkpoints.close()
    assert [checkpoints.due(300, 800) for _ in range(4)] == [False, False, True, True]  # an eighth: after 3 × 5 s
    checkpoints.save(2, state(0.0), {})
    checkpoints.close()
    assert [checkpoints.due(3, 800) for _ in range(10)] == [False] * 8 + [True] * 2  # no eighth: after 9 × 5 s


@pytest.mark.slow
def test_checkpoints_of_another_training_are_refused(problem: ModuleType, tmp_path: Path) -> None:
    content = problem.examples(tmp_path / "content", train=640, evaluation=64)
    run = TrainingRun(problem.SPECS, content, batch_size=16, work_dir=tmp_path / "work", checkpoint_seconds=0.0)
    problem.fit(run)
    with pytest.raises(InputError, match="belong to another training"):
        problem.fit(dataclasses.replace(run, seed=1))
    resumed = problem.fit(run)  # finished before: goes on from the last checkpoint
    assert resumed.first_step > 0
    assert resumed.examples < 640


def result_of(fork: Fork) -> dict[str, Any]:
    end = fork.end(200)
    assert end is not None
    assert end["code"] == 0, fork.err.read_text()
    result: dict[str, Any] = json.loads(fork.out.read_text().splitlines()[-1])
    return result


def reports(fork: Fork) -> Iterator[int]:
    """How many examples were trained on, whenever a training reports it, as long as it is at work."""
    with fork.out.open() as out:
        line = ""
        while fork.end(0.005) is None:
            line += out.readline()
            if line.endswith("\n"):
                yield json.loads(line)["done"]
                line = ""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_terminated_at_twenty_steps_it_ends_with_the_same_bits(
    problem: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One interruption after another, at random: by turns kill -9, and SIGTERM, after which it saves first."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    content = problem.examples(tmp_path / "content", train=40_000, evaluation=5_000)
    common: dict[str, Any] = {"examples": str(content), "epochs": 5, "batch_size": 50, "depth": 8, "seed": 5}
    common |= {"how": "everything", "checkpoint_seconds": 0.0}
    random, work = np.random.default_rng(20), str(tmp_path / "work")
    modules = ("drivetrain.engine", "flax.nnx", "optax", "orbax.checkpoint")
    with Forks("drivetrain.tests.engine.training_problem:command", *modules) as forks:

        def start(**options: Any) -> Fork:
            return forks.start(json.dumps({**common, **options}))

        whole = result_of(start())
        for attempt in range(20):
            hold = int(random.integers(1, 9_000))
            training = start(work_dir=work, hold=hold)
            done = reports(training)
            first = next(done)
            assert first + hold < 200_000
            next((count for count in done if count >= first + hold), None)
            number = (signal.SIGKILL, signal.SIGTERM)[attempt % 2]
            training.kill(number)
            end, errors = training.end(60), training.err.read_text()
            assert end is not None
            assert end["code"] == (1 if number == signal.SIGTERM else -number), errors
            assert ("Canceled: SIGTERM" in errors) == (number == signal.SIGTERM)
        resumed = result_of(start(work_dir=work))
    assert resumed["first_step"] > 400  # the interruptions took it somewhere
    assert resumed["examples"] == whole["examples"] - resumed["first_step"] * 50
    assert (resumed["digest"], resumed["losses"]) == (whole["digest"], whole["losses"])


@pytest.mark.slow
def test_killed_between_rollbacks_it_ends_with_the_same_bits(
    problem: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row makes the batch of each epoch that it is shuffled into break."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    columns = problem.columns(20_000)
    columns["distance"][1234] = np.nan
    splits = {"train": pa.table(columns), "eval": pa.table(problem.columns(1_000, 1))}
    content = problem.write(tmp_path / "content", splits)
    common = {"examples": str(content), "epochs": 5, "batch_size": 50, "depth": 8, "seed": 5, "checkpoint_seconds": 0.0}
    work = str(tmp_path / "work")
    modules = ("drivetrain.engine", "flax.nnx", "optax", "orbax.checkpoint")
    with Forks("drivetrain.tests.engine.training_problem:command", *modules) as forks:

        def start(**options: Any) -> Fork:
            return forks.start(json.dumps({**common, "how": "rollbacks", **options}))

        whole = result_of(start())
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
            training = start(work_dir=work, hold=17_000)
            done = reports(training)
            first = next(done)
            next((count for count in done if count >= first + 17_000), None)
            training.kill(number)
            end = training.end(60)
            assert end is not None
            assert end["code"] == (1 if number == signal.SIGTERM else -number), training.err.read_text()
        resumed = result_of(start(work_dir=work))
    assert len(whole["rollbacks"]) == 5
    assert resumed["first_step"] > 400
    for part in ("digest", "losses", "rollbacks"):
        assert resumed[part] == whole[part]


SAVER = """
import sys
import threading
from pathlib import Path
import numpy as np
from drivetrain.engine.training.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]))
for step in range(1, 10_000):
    checkpoints.save(step, {"a": np.full((200, 1000), step, np.float32)}, {"step": step})
    checkpoints.wait()
    print(step, flush=True)
"""


@pytest.mark.slow
def test_killed_while_saving_the_newest_whole_one_is_found(tmp_path: Path) -> None:
    """The writer does nothing but save, so the kill falls into a save; what was reported as saved is still there."""
    like = {"a": np.empty((200, 1000), np.float32)}
    random = np.random.default_rng(0)
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        wanted = int(random.integers(3, 25))
        reported = next(int(line) for line in process.stdout if int(line) >= wanted)
        process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=60)
        reported = max([reported, *map(int, out.split())])
        notes: list[str] = []
        checkpoints = Checkpoints(tmp_path, note=notes.append)
        restored = checkpoints.restore(like)
        checkpoints.close()
        assert restored is not None
        assert not notes
        assert restored[0] >= reported
        assert restored[2] == {"step": restored[0]}
        np.testing.assert_array_equal(restored[1]["a"], np.full((200, 1000), restored[0], np.float32))
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()


def test_the_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, begun = threading.Event(), threading.Event()
    steps = Checkpoints.steps

    def held(self: Checkpoints) -> list[int]:
        begun.set()
        assert goes_on.wait(60)
        return steps(self)

    checkpoints = Checkpoints(tmp_path, seconds=0.0)
    assert checkpoints.due(1, 800)
    monkeypatch.setattr(Checkpoints, "steps", held)
    written = {"a": np.ones(1000, np.float32)}
    checkpoints.save(1, written, {"loss": 1.0})
    assert begun.wait(60)
    written["a"][:] = 2.0  # as the next step does, which writes its state where this one was
    assert not checkpoints.due(2, 800)
    assert not list(tmp_path.iterdir())
    goes_on.set()
    checkpoints.close()
    restored = Checkpoints(tmp_path).restore(written)
    assert restored is not None
    assert (restored[1]["a"] == 1.0).all()


def test_what_could_not_be_written_is_raised_when_it_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoints = Checkpoints(tmp_path / "file")
    checkpoints.save(1, state(1.0), {})
    said = r"checkpoint of step {} could not be written to .*file: FileExistsError.*\n.* goes on at its begin"
    with pytest.raises(DrivetrainError, match=said.format(1)):
        checkpoints.save(2, state(2.0), {})
    checkpoints.save(3, state(3.0), {})
    with pytest.raises(DrivetrainError, match=said.format(3)):
        checkpoints.close()


def test_callbacks_are_closed_where_a_checkpoint_could_not_be_written(problem: ModuleType, tmp_path: Path) -> None:
    class Closing(Callback):
        closed = False

        def close(self) -> None:
            self.closed = True

    content = problem.examples(tmp_path / "content", train=640, evaluation=64)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "checkpoints").touch()
    watched = Closing()
    run = TrainingRun(
        problem.SPECS, content, batch_size=16, depth=1, work_dir=tmp_path / "work", checkpoint_seconds=0.0,
        callbacks=[watched],
    )  # fmt: skip
    with pytest.raises(DrivetrainError, match=r"checkpoint of step 1 could not be written to .*: FileExistsError"):
        problem.fit(run)
    assert watched.closed


def test_what_a_policy_names_is_kept_beside_the_newest(tmp_path: Path) -> None:
    """Every third step's first checkpoint, the best, the newest two; a damaged one and a new process change nothing."""
    policy = CheckpointPolicy(keep_period=30, best="eval_loss")

    def on_disk() -> list[int]:
        return sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal())

    checkpoints = Checkpoints(tmp_path, policy=policy)
    for step, best in ((10, True), (20, True), (31, False), (40, False), (50, False)):
        checkpoints.save(step, state(step / 10), {}, best=best)
    checkpoints.close()
    assert on_disk() == [20, 31, 40, 50]  # the best, the first at or after 30, the newest two
    damage(tmp_path / "50", "truncated")
    again = Checkpoints(tmp_path, seconds=1e9, policy=policy)
    restored = again.restore(shapes(state(0.0)))
    assert restored is not None
    assert restored[0] == 40
    assert not again.due(59, 10**6)
    assert again.due(60, 10**6)
    for step, best in ((55, False), (60, True), (70, False), (90, False), (100, False)):
        again.save(step, state(step / 10), {}, best=best)
    assert sorted(again.kept()) == [31, 60, 90]
    assert on_disk() == [31, 60, 90, 100]
    again.close()
    arrays = read_checkpoint(tmp_path / "60")
    np.testing.assert_array_equal(arrays["params.dense.kernel"], np.full((50, 8), 6.0, np.float32))
    assert (tmp_path / "unusable-50").is_dir()
    damage(tmp_path / "60", "flipped")
    with pytest.raises(InputError, match="60 holds no checkpoint that can be used"):
        read_checkpoint(tmp_path / "60")
    with pytest.raises(InputError, match="no such folder"):
        read_checkpoint(tmp_path / "61")


def test_a_period_of_hours_and_one_that_ends_with_the_training(tmp_path: Path) -> None:
    now = 0.0
    policy = CheckpointPolicy(max_to_keep=1, keep_hours=2.0)
    checkpoints = Checkpoints(tmp_path, seconds=1e9, policy=policy, clock=lambda: now)
    for hour in range(1, 8):
        now = hour * 3600.0
        if checkpoints.due(hour, 7) or hour % 2:
            checkpoints.save(hour, state(hour), {})
            checkpoints.wait()
    assert sorted(checkpoints.kept()) == [2, 4, 6]
    checkpoints.close()
    by_steps = Checkpoints(tmp_path / "steps", policy=CheckpointPolicy(keep_period=100))
    assert by_steps.due(800, 800)  # not to go on from, but to be kept


@pytest.mark.parametrize(
    ("options", "said"), [({"max_to_keep": 0}, "max_to_keep"), ({"keep_hours": 0.0}, "keep_hours")]
)
def test_policies_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"{said} of the checkpoints is 0"):
        CheckpointPolicy(**options)


class Epochs(Callback):
    """Remembers the parameters after each epoch, and their loss."""

    def __init__(self) -> None:
        self.params: dict[int, Any] = {}
        self.losses: dict[int, float] = {}

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        step = record.epoch * progress.steps_per_epoch
        self.params[step] = progress.variables()
        self.losses[step] = record.eval_loss or 0.0


@pytest.mark.parametrize("stopped", [None, 25])
def test_the_best_and_periodic_checkpoints_of_a_training(
    problem: ModuleType, tmp_path: Path, stopped: int | None
) -> None:
    """The rate grows until the loss rises, so that the best epoch is in the middle; interrupted, it is the same one."""
    import jax
    import optax
    from drivetrain.engine.training.model import nnx_model

    def stop(done: int, total: int | None, unit: str) -> None:
        if stopped is not None and done >= stopped * 16:
            raise Canceled("stop")

    watched, notes = Epochs(), list[str]()
    run = TrainingRun(
        problem.SPECS,
        problem.examples(tmp_path / "content", train=160, evaluation=64),
        epochs=6,
        batch_size=16,
        depth=5,
        work_dir=tmp_path / "work",
        progress=stop,
        note=notes.append,
        callbacks=[watched],
    )

    def fit(run: TrainingRun) -> Any:
        return run.fit(
            nnx_model(problem.build),
            loss=lambda logits, batch: optax.sigmoid_binary_cross_entropy(logits, batch["late"]).mean(),
            predict=lambda logits: {"probability": jax.nn.sigmoid(logits)},
            optimizer=optax.sgd(optax.exponential_decay(0.05, 10, 3.0)),
            label="late",
            checkpoints=CheckpointPolicy(max_to_keep=1, best="eval_loss", keep_period=20),
        )

    if stopped is not None:
        with pytest.raises(Canceled):
            fit(run)
        run = dataclasses.replace(run, progress=lambda *report: None)
    trained = fit(run)
    assert bool(trained.first_step) == bool(stopped)
    stops = [note for note in notes if note.startswith("stopped at")]
    step = trained.first_step
    assert stops == ([f"stopped at step {step} of 60; it can go on from step {step}"] if stopped else [])
    best = min(watched.losses, key=watched.losses.__getitem__)
    assert 10 < best < 60
    assert set(trained.checkpoints) == {20, 40, 60, best}
    kernel = read_checkpoint(trained.checkpoints[best])["params.hidden.kernel"]
    np.testing.assert_array_equal(kernel, watched.params[best]["hidden"]["kernel"])


def test_a_full_disk_is_named_and_the_checkpoint_before_stays(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    try:
        random = np.random.default_rng(0)
        states = [{"a": random.normal(size=500_000).astype(np.float32)} for _ in range(4)]  # 2 MB, not to be compressed
        checkpoints = Checkpoints(folder)
        with pytest.raises(DrivetrainError, match="could not be written") as caught:  # noqa: PT012 - which, is not said
            for step, each in enumerate(states, 1):
                checkpoints.save(step, each, {})
                checkpoints.wait()
        checkpoints.close()
        step = int(str(caught.value).split("checkpoint of step ")[1].split()[0])
        assert step > 1
        assert "No space left" in str(caught.value) or "ENOSPC" in str(caught.value) or "RESOURCE" in str(caught.value)
        assert f"goes on at step {step - 1}" in (caught.value.fix or "")
        notes: list[str] = []
        again = Checkpoints(folder, note=notes.append)
        restored = again.restore(states[0])
        assert restored is not None
        assert not notes
        assert restored[0] == step - 1
        np.testing.assert_array_equal(restored[1]["a"], states[step - 2]["a"])
        again.close()
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        PermissionError(errno.EACCES, "Permission denied"),
        MemoryError(),
        ValueError('RESOURCE_EXHAUSTED: Error opening "manifest.ocdbt" [OS error 24: EMFILE Too many open files]'),
    ],
    ids=["files", "permission", "memory", "tensorstore"],
)
def test_what_the_machine_lacks_is_not_held_against_a_checkpoint(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like = {"a": np.zeros(3, np.float32)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"a": np.ones(3, np.float32)}, {"step": 1})
    checkpoints.close()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "_read_arrays", fail)
        with pytest.raises(DrivetrainError, match=r"checkpoint of step 1 in .* cannot be read now"):
            Checkpoints(tmp_path).restore(like)
    restored = Checkpoints(tmp_path).restore(like)
    assert restored is not None
    assert restored[0] == 1


def test_a_second_training_in_a_work_folder_is_refused(problem: ModuleType, tmp_path: Path) -> None:
    """In this process: it begins while the first is under way, which it leaves alone."""
    content = problem.examples(tmp_path / "content", train=640, evaluation=64)
    run = TrainingRun(problem.SPECS, content, batch_size=16, epochs=2, checkpoint_seconds=0.0)
    refused: list[BaseException | None] = []

    class Second(Callback):
        def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
            with ThreadPoolExecutor(1) as thread:
                refused.append(thread.submit(problem.fit, shared).exception())

    shared = dataclasses.replace(run, work_dir=tmp_path / "work")
    alone = problem.fit(run)
    first = problem.fit(dataclasses.replace(shared, callbacks=[Second()]))
    assert [type(error) for error in refused] == [DrivetrainError] * 2
    assert f"{shared.work_dir}: process {os.getpid()} on {socket.gethostname()} (this one)" in str(refused[0])
    assert same(first.params, alone.params)
    with locked(tmp_path / "work", pytest.fail):
        pass


HOLDER = """
import sys
from pathlib import Path
from drivetrain.engine.training.work_lock import locked
with locked(Path(sys.argv[1]), print):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_killed_training_leaves_its_work_folder_to_the_next(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdin=pipe, stdout=pipe, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with (
            pytest.raises(DrivetrainError, match=f"{tmp_path}: process {process.pid} on "),
            locked(tmp_path, pytest.fail),
        ):
            pytest.fail("two hold it")
        process.kill()
    with locked(tmp_path, pytest.fail):
        pass


def test_a_forked_process_holds_no_lock(tmp_path: Path) -> None:
    """As one of a pool for data does, that outlives a training which was killed. Forked in a process without JAX."""
    script = """
import os, sys, time
from pathlib import Path
from drivetrain.engine.training.work_lock import is_at_work, locked
folder = Path(sys.argv[1])
with locked(folder, print):
    if (child := os.fork()) == 0:
        os.closerange(0, 3)  # or the pipe to the test would stay open
        time.sleep(600)
    print(is_at_work(folder, "training"), child, flush=True)
    os._exit(0)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    held, child = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    try:
        assert held == "True"
        assert not is_at_work(tmp_path, "training")
        with locked(tmp_path, pytest.fail):
            pass
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_lock_is_no_link_and_its_text_may_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("another's", encoding="utf-8")
    (tmp_path / "evaluator.lock").symlink_to(tmp_path / "other")
    notes: list[str] = []
    with locked(tmp_path, notes.append, "evaluator"):
        assert "cannot be locked" in notes[0]
    assert (tmp_path / "other").read_text(encoding="utf-8") == "another's"
    with locked(tmp_path, pytest.fail):
        (tmp_path / "training.lock").write_bytes(b"\xff")
        with pytest.raises(DrivetrainError, match="another training uses"), locked(tmp_path, pytest.fail):
            pass


def test_a_work_folder_that_cannot_be_locked_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notes: list[str] = []
    with locked(tmp_path / "file" / "work", notes.append):
        assert len(notes) == 1
    assert "cannot be locked" in notes[0]
