"""kill -9 at random moments, then `resume`: the final artifacts are those of a run that nobody disturbed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.tests.examples import flights_job as job
from drivetrain.tests.examples.forks import commands, drive
from drivetrain.tests.forks import Forks

pytestmark = [pytest.mark.slow, pytest.mark.engine]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with commands() as forks:
        yield forks


def killed(forks: Forks, root: Path, after: float, *arguments: str, begun: bool = False) -> None:
    """Start the job and kill it so many seconds later, or after it made its store, unless it is done by then."""
    fork = forks.start("run", str(job.PROJECT), "--root", str(root), "--json", *arguments)
    while begun and fork.end() is None and not (root / "metadata.db").exists():
        time.sleep(0.01)
    if fork.end(after) is None:
        fork.kill()
        assert fork.end(None) is not None


def check_resumed(forks: Forks, root: Path, undisturbed: job.Done) -> job.Done | None:
    """Resume and compare; None where the kill came before the run was recorded."""
    runs = drive(forks, "runs", "--root", str(root)).result if root.is_dir() else {}
    if not json.loads(json.dumps(runs)).get("runs"):
        return None
    done = drive(forks, "resume", "--root", str(root))
    assert done.code == undisturbed.code, done.err
    assert done.result["state"] == undisturbed.result["state"]
    assert done.fingerprints == undisturbed.fingerprints
    report = drive(forks, "fsck", "--root", str(root)).result
    assert report["missing"] == [], report
    assert report["corrupt"] == [], report
    return done


def seconds_undisturbed(forks: Forks, root: Path, undisturbed: job.Done, *arguments: str) -> float:
    """How long a fork takes that nobody kills; it does what the command does."""
    done = drive(forks, "run", str(job.PROJECT), "--root", str(root), *arguments)
    assert (done.code, done.fingerprints) == (undisturbed.code, undisturbed.fingerprints), done.err
    return done.wall


@pytest.mark.timeout(2400)
def test_forty_kills_on_a_sample(tmp_path: Path, forks: Forks) -> None:
    options = ("--param", f"data={job.sample(tmp_path / 'flights.csv', 0.02)}", "--param", "epochs=4")
    undisturbed = job.run(tmp_path / "undisturbed" / ".drivetrain", *options)
    whole = seconds_undisturbed(forks, tmp_path / "forked" / ".drivetrain", undisturbed, *options)
    moments = random.Random(0)
    resumed = 0
    for index in range(40):
        root = tmp_path / f"kill-{index}" / ".drivetrain"
        root.parent.mkdir()
        killed(forks, root, moments.uniform(0.2, whole), *options, begun=index % 4 > 0)
        resumed += check_resumed(forks, root, undisturbed) is not None
    assert resumed >= 30, "most kills must hit a run that had begun"


@pytest.mark.timeout(1200)
def test_five_kills_on_all_rows_and_the_trainer_goes_on(tmp_path: Path, forks: Forks) -> None:
    options = ("--param", "epochs=16")  # long enough that a checkpoint is worth its cost
    alone = tmp_path / "undisturbed" / ".drivetrain"
    undisturbed = drive(forks, "run", str(job.PROJECT), "--root", str(alone), *options)
    assert undisturbed.code == 0, undisturbed.err
    moments = random.Random(1)
    for index in range(4):
        root = tmp_path / f"kill-{index}" / ".drivetrain"
        root.parent.mkdir()
        killed(forks, root, moments.uniform(0.2, undisturbed.wall), *options)
        check_resumed(forks, root, undisturbed)

    # The fifth dies in its training, after a checkpoint: it resumes there, and trains less than a whole run.
    for attempt in range(5):
        root = tmp_path / f"kill-trainer-{attempt}" / ".drivetrain"
        root.parent.mkdir()
        fork = forks.start("run", str(job.PROJECT), "--root", str(root), *options)
        while not checkpointed(root) and fork.end() is None:
            time.sleep(0.005)
        fork.kill()
        fork.end(None)
        if checkpointed(root) and not list(root.glob("artifacts/Trainer/*")):
            break  # else we were too slow
    done = check_resumed(forks, root, undisturbed)
    assert done is not None
    history = json.loads((done.path(root, "Trainer", "model") / "extra" / "history.json").read_text())
    fresh = undisturbed.path(alone, "Trainer", "model") / "extra" / "history.json"
    assert history["resumed_at_step"] > 0
    assert history["examples"] < json.loads(fresh.read_text())["examples"]


def checkpointed(root: Path) -> bool:
    """Whether a checkpoint lies in the trainer's working folder."""
    return any(path.name.isdigit() for path in root.glob("work/nodes/*/checkpoints/*"))
