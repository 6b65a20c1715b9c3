"""kill -9 at random moments, then `resume`: the final artifacts are those of a run that nobody disturbed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from drivetrain.tests.examples import flights_job as job

pytestmark = [pytest.mark.slow, pytest.mark.engine]


def killed(root: Path, after: float, *arguments: str, begun: bool = False) -> int:
    """Start the job and kill it so many seconds later, or after it made its store; gives its code, 0 if it was done."""
    command = job.command("run", str(job.PROJECT), "--root", str(root), "--json", *arguments)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    while begun and process.poll() is None and not (root / "metadata.db").exists():
        time.sleep(0.01)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    return process.wait()


def check_resumed(root: Path, undisturbed: job.Done) -> job.Done | None:
    """Resume and compare; None where the kill came before the run was recorded."""
    runs = job.drive("runs", "--root", str(root)).result if root.is_dir() else {}
    if not json.loads(json.dumps(runs)).get("runs"):
        return None
    done = job.drive("resume", "--root", str(root))
    assert done.code == undisturbed.code, done.err
    assert done.result["state"] == undisturbed.result["state"]
    assert done.fingerprints == undisturbed.fingerprints
    report = job.drive("fsck", "--root", str(root)).result
    assert report["missing"] == [], report
    assert report["corrupt"] == [], report
    return done


@pytest.mark.timeout(2400)
def test_forty_kills_on_a_sample(tmp_path: Path) -> None:
    options = ("--param", f"data={job.sample(tmp_path / 'flights.csv', 0.02)}", "--param", "epochs=4")
    begin = time.monotonic()
    undisturbed = job.run(tmp_path / "undisturbed" / ".drivetrain", *options)
    whole = time.monotonic() - begin
    moments = random.Random(0)
    resumed = 0
    for index in range(40):
        root = tmp_path / f"kill-{index}" / ".drivetrain"
        root.parent.mkdir()
        killed(root, moments.uniform(0.2, whole), *options, begun=index % 4 > 0)
        resumed += check_resumed(root, undisturbed) is not None
    assert resumed >= 30, "most kills must hit a run that had begun"


@pytest.mark.timeout(1200)
def test_five_kills_on_all_rows_and_the_trainer_goes_on(tmp_path: Path) -> None:
    options = ("--param", "epochs=16")  # long enough that a checkpoint is worth its cost
    begin = time.monotonic()
    undisturbed = job.run(tmp_path / "undisturbed" / ".drivetrain", *options)
    whole = time.monotonic() - begin
    assert undisturbed.code == 0, undisturbed.err
    moments = random.Random(1)
    for index in range(4):
        root = tmp_path / f"kill-{index}" / ".drivetrain"
        root.parent.mkdir()
        killed(root, moments.uniform(0.2, whole), *options)
        check_resumed(root, undisturbed)

    # The fifth dies in its training, after a checkpoint: it resumes there, and trains less than a whole run.
    for attempt in range(5):
        root = tmp_path / f"kill-trainer-{attempt}" / ".drivetrain"
        root.parent.mkdir()
        command = job.command("run", str(job.PROJECT), "--root", str(root), *options)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/") as process:
            while not checkpointed(root) and process.poll() is None:
                time.sleep(0.005)
            process.kill()
        if checkpointed(root) and not list(root.glob("artifacts/Trainer/*")):
            break  # else we were too slow
    done = check_resumed(root, undisturbed)
    assert done is not None
    history = json.loads((done.path(root, "Trainer", "model") / "extra" / "history.json").read_text())
    fresh = undisturbed.path(tmp_path / "undisturbed" / ".drivetrain", "Trainer", "model") / "extra" / "history.json"
    assert history["resumed_at_step"] > 0
    assert history["examples"] < json.loads(fresh.read_text())["examples"]


def checkpointed(root: Path) -> bool:
    """Whether a checkpoint lies in the trainer's working folder."""
    return any(path.name.isdigit() for path in root.glob("work/nodes/*/checkpoints/*"))
