"""The search: trials in processes that are killed, a search that is killed itself, and what ends it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from drivetrain.components.tuning.search import best_of
from drivetrain.components.tuning.study import Outcome, Study, TrialAttempt
from drivetrain.components.tuning.trial import Link
from drivetrain.errors import Canceled, InputError
from drivetrain.tests.components.tuning.searching import Launch, results, search_of, settings, train, value

pytest.importorskip("optuna")

BODIES = '''
"""What processes of trials do in tests: no JAX, and no longer than they are told."""
import json, os, signal, time
from pathlib import Path
from drivetrain.components.tuning.study import Outcome


def value(hyperparameters):
    return (hyperparameters["x"] - 0.6) ** 2 + (hyperparameters["kind"] == "a")


def train(task, link):
    reached = value(task["hyperparameters"])
    link.monitored(["loss", "eval_loss"])
    curve = []
    for epoch in range(1, 4):
        curve.append([reached + 1 / epoch])
        link.epoch(curve)
    return Outcome("COMPLETE", (reached,), tuple(map(tuple, curve)))


def wait(task, link):
    """Says that it is there, and waits until it may go on."""
    folder = Path(task["folder"])
    name = f"{Path(task['work']).name}.{os.getpid()}"
    (folder / f"{name}.part").touch()
    (folder / f"{name}.part").rename(folder / f"{name}.pid")
    while not (folder / "go").exists():
        time.sleep(0.01)
    return train(task, link)


def die(task, link):
    print("the last words", flush=True)
    os._exit(3) if Path(task["work"]).name == "1" else None
    return train(task, link)


def fail(task, link):
    raise RuntimeError("why it ended")


def shout(task, link):
    print("x" * 1_000_000, flush=True)
    os._exit(3)


def talk_on(task, link):
    """A thread that is left behind speaks once more, right after the end."""

    def send(**message):
        messages = [message, {"event": "note", "text": "said late"}] if message["event"] == "ended" else [message]
        link._stream.write(b"".join(json.dumps(each).encode() + bytes([10]) for each in messages))
        link._stream.flush()

    link.send = send
    return train(task, link)


def hold(task, link):
    """Is killed while a process that it started holds all its files open."""
    first = Path(task["folder"]) / "first"
    if Path(task["work"]).name == "1" and not first.exists():
        first.touch()
        if os.fork() == 0:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)
    return train(task, link)


def ask(task, link):
    link.monitored(["loss", "accuracy"])
    return train(task, link)
'''


@pytest.fixture
def bodies(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that processes can import."""
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "bodies_of_trials.py").write_text(BODIES)
    monkeypatch.syspath_prepend(folder)
    return "bodies_of_trials"


def kill_some(folder: Path, processes: int, kills: int) -> None:
    """Wait until so many processes are at work, kill some of them at once, and let the others go on."""
    deadline = time.monotonic() + 120
    while len(pids := sorted(folder.glob("*.pid"))) < processes and time.monotonic() < deadline:
        time.sleep(0.02)
    for path in pids[:: processes // kills][:kills]:
        os.kill(int(path.stem.rpartition(".")[2]), signal.SIGKILL)
    (folder / "go").touch()


@pytest.mark.parametrize("sampler", ["random", "grid", "tpe"])
def test_three_of_eight_processes_are_killed(sampler: Any, bodies: str, tmp_path: Path) -> None:
    """By random and grid search the results are those of an undisturbed study; by TPE the budget is reached."""
    chosen, launch = settings(sampler), Launch()
    trials = None if sampler == "grid" else 12
    undisturbed, search = search_of(tmp_path / "whole", chosen, Launch(), trials=trials)
    search.run_here(train)
    folder = tmp_path / "processes"
    folder.mkdir()
    study, search = search_of(tmp_path / "killed", chosen, launch, trials=trials)
    killer = threading.Thread(target=kill_some, args=(folder, 8, 3))
    killer.start()
    search.run_parallel(
        8, f"{bodies}:wait", lambda attempt, work: {
            "hyperparameters": dict(attempt.hyperparameters), "work": str(work), "folder": str(folder),
        }
    )  # fmt: skip
    killer.join()
    ended = study.trials()
    deaths = [kill for trial in ended for kill in trial.kills]
    assert deaths == ["it was ended by SIGKILL, or the machine ran out of memory"] * 3
    assert sum("its process died" in note for note in launch.notes) == 3
    assert len(ended) == (18 if sampler == "grid" else 12)
    assert all(trial.outcome is not None and trial.outcome.state == "COMPLETE" for trial in ended)
    assert all(trial.outcome.values == (value(trial.hyperparameters),) for trial in ended if trial.outcome)
    if sampler != "tpe":
        assert results(chosen, study) == results(chosen, undisturbed)
    if sampler == "grid":
        everything = itertools.product([-2 + 0.5 * step for step in range(9)], ["a", "b"])
        best = best_of(chosen.objectives, ended)
        assert best is not None
        assert best.hyperparameters == min(({"x": x, "kind": kind} for x, kind in everything), key=value)


def test_a_trial_whose_process_always_dies_fails_with_its_last_words(bodies: str, tmp_path: Path) -> None:
    launch = Launch()
    study, search = search_of(tmp_path, settings("random"), launch, trials=4)
    search.run_parallel(
        2, f"{bodies}:die", lambda attempt, work: {"hyperparameters": dict(attempt.hyperparameters), "work": str(work)}
    )
    outcomes = [trial.outcome for trial in study.trials()]
    assert [outcome.state for outcome in outcomes if outcome] == ["COMPLETE", "FAILED", "COMPLETE", "COMPLETE"]
    assert outcomes[1] is not None
    assert outcomes[1].reason == "its process was ended 3 times: it ended with code 3: the last words"
    assert "the last words" in launch.lines


def test_a_process_that_raises_says_why(bodies: str, tmp_path: Path) -> None:
    """It closes its socket, which is seen, before it prints its traceback."""
    launch = Launch()
    study, search = search_of(tmp_path, settings("random"), launch, trials=1)
    with pytest.raises(InputError, match="ended with code 1: RuntimeError: why it ended"):
        search.run_parallel(1, f"{bodies}:fail", lambda attempt, work: {"work": str(work)})
    (trial,) = study.trials()
    assert trial.kills == ("it ended with code 1: RuntimeError: why it ended",) * 3
    assert sum("RuntimeError: why it ended" in line for line in launch.lines) == 3


def test_last_words_are_few(bodies: str, tmp_path: Path) -> None:
    study, search = search_of(tmp_path, settings("random"), Launch(), trials=1)
    with pytest.raises(InputError, match="none of 1 trials completed"):
        search.run_parallel(1, f"{bodies}:shout", lambda attempt, work: {"work": str(work)})
    (trial,) = study.trials()
    assert trial.outcome is not None
    assert "it ended with code 3: xxx" in trial.outcome.reason
    assert len(trial.outcome.reason) < 700


def test_what_a_trial_says_after_its_end_ends_no_search(bodies: str, tmp_path: Path) -> None:
    launch = Launch()
    study, search = search_of(tmp_path, settings("random"), launch, trials=3)
    task = {"hyperparameters": {"x": 0.0, "kind": "a"}, "work": ""}
    search.run_parallel(1, f"{bodies}:talk_on", lambda attempt, work: task)
    assert len(study.trials()) == 3
    assert "said late" in launch.notes


def test_a_dead_process_is_seen_though_another_holds_its_files(bodies: str, tmp_path: Path) -> None:
    study, search = search_of(tmp_path, settings("random"), Launch(), trials=4)
    search.run_parallel(
        2, f"{bodies}:hold", lambda attempt, work: {
            "hyperparameters": dict(attempt.hyperparameters), "work": str(work), "folder": str(tmp_path),
        }
    )  # fmt: skip
    assert [len(trial.kills) for trial in study.trials()] == [0, 1, 0, 0]
    assert all(trial.outcome and trial.outcome.state == "COMPLETE" for trial in study.trials())


def test_what_no_trial_records_ends_the_search(bodies: str, tmp_path: Path) -> None:
    _, search = search_of(tmp_path, settings("random"), Launch(), trials=4)
    task = {"hyperparameters": {"x": 0.0, "kind": "a"}, "work": ""}
    with pytest.raises(InputError, match="no trial records the objective 'eval_loss'"):
        search.run_parallel(2, f"{bodies}:ask", lambda attempt, work: task)


def test_a_stop_ends_the_processes(bodies: str, tmp_path: Path) -> None:
    folder = tmp_path / "processes"
    folder.mkdir()
    launch = Launch(cancel=lambda: len(list(folder.glob("*.pid"))) == 2)
    study, search = search_of(tmp_path, settings("random"), launch, trials=4)
    with pytest.raises(Canceled):
        search.run_parallel(
            2, f"{bodies}:wait", lambda attempt, work: {
                "hyperparameters": dict(attempt.hyperparameters), "work": str(work), "folder": str(folder),
            }
        )  # fmt: skip
    for path in folder.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.stem.rpartition(".")[2]), 0)
    chosen = settings("random")
    study, search = search_of(tmp_path, chosen, Launch(), trials=4)
    search.run_here(train)
    undisturbed, search = search_of(tmp_path / "whole", chosen, Launch(), trials=4)
    search.run_here(train)
    assert results(chosen, study) == results(chosen, undisturbed)


SCRIPT = """
import os, signal, sys
from pathlib import Path
from drivetrain.tests.components.tuning import searching as t
folder, left, sampler = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
study, search = t.search_of(folder, t.settings(sampler), t.Launch(), trials=8)
count = 0

def train(attempt, work, link):
    global count
    count += 1
    if count > left:
        link.epoch([[1.0]])
        os.kill(os.getpid(), signal.SIGKILL)
    return t.train(attempt, work, link)

search.run_here(train)
"""


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_search_that_is_killed_goes_on_to_the_same_results(sampler: str, tmp_path: Path) -> None:
    for left in (0, 3):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "killed"), str(left), sampler]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
    chosen = settings(sampler)
    study, search = search_of(tmp_path / "killed", chosen, Launch(), trials=8)
    search.run_here(train)
    undisturbed, search = search_of(tmp_path / "whole", chosen, Launch(), trials=8)
    search.run_here(train)
    assert results(chosen, study) == results(chosen, undisturbed)


def test_time_ends_a_search_also_where_it_was_left_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("drivetrain.components.tuning.search.time.monotonic", lambda: now[0])

    def slow(attempt: TrialAttempt, work: Path, link: Link) -> Outcome:
        now[0] += 10.0
        return train(attempt, work, link)

    study, search = search_of(tmp_path, settings("random"), Launch(), seconds=25)
    search.run_here(slow)
    assert len(study.trials()) == 3
    study, search = search_of(tmp_path, settings("random"), Launch(), seconds=45)
    search.run_here(slow)
    assert len(study.trials()) == 5


def test_a_search_whose_trials_all_fail_says_why(tmp_path: Path) -> None:
    def failing(attempt: TrialAttempt, work: Path, link: Link) -> Outcome:
        return Outcome("FAILED", reason="the loss is nan at step 3")

    study, search = search_of(tmp_path, settings("random"), Launch(), trials=100)
    with pytest.raises(InputError, match="none of 5 trials completed; the first: the loss is nan at step 3"):
        search.run_here(failing)
    study, search = search_of(tmp_path / "few", settings("random"), Launch(), trials=2)
    with pytest.raises(InputError, match="none of 2 trials completed"):
        search.run_here(failing)
    assert json.dumps([trial.outcome.to_json() for trial in study.trials() if trial.outcome])


def test_a_search_that_refuses_to_go_on_has_not_died_of_its_trial(tmp_path: Path) -> None:
    def refused(attempt: TrialAttempt, work: Path, link: Link) -> Outcome:
        with suppress(InputError):  # which the trial takes for a failure of its function
            link.monitored(["loss"])
        return Outcome("FAILED", reason="no trial records it")

    for _ in range(2):
        _, search = search_of(tmp_path, settings("random"), Launch(), trials=2)
        with pytest.raises(InputError, match="no trial records the objective 'eval_loss'"):
            search.run_here(refused)
        assert [trial.kills for trial in Study(tmp_path / "journal.log", settings("random")).trials()] == [()]


def test_progress_counts_trials(tmp_path: Path) -> None:
    launch = Launch()
    _, search = search_of(tmp_path, settings("random"), launch, trials=4)
    search.run_here(train)
    assert launch.done == [(number, 4) for number in range(4)]
    assert launch.notes[0].startswith("trial 0: eval_loss ")
    assert "; the best is trial " in "".join(launch.notes[1:])
