"""Whatever a component, an observer, another process or a signal does: one clear end, nothing lost, fsck clean."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from drivetrain.console.session import view
from drivetrain.errors import InputError
from drivetrain.metadata import MetadataStore, Owner
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, NodeResult, PipelineFunction, list_runs, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher import launcher as launching
from drivetrain.pipelines.launcher import runs
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.pipelines.launcher.shared_state import SharedState
from drivetrain.pipelines.launcher.states import RunState
from drivetrain.pipelines.runners import inline

Pipe = Callable[..., PipelineFunction[..., object]]


def states(nodes: dict[str, NodeResult] | object) -> dict[str, str]:
    assert isinstance(nodes, dict)
    return {name: result.state for name, result in nodes.items()}


def clean(home: Home) -> None:
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


@pytest.mark.parametrize("code", ["os.chdir('/')", "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"])
def test_a_component_that_changes_the_working_directory_changes_it_for_itself(
    home: Home, pipe: Pipe, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_pipeline(home, pipe(f'n = Make()\nMisbehave(n, code="""{code}""")\nUse(n)'))
    assert result.state == "COMPLETE"
    assert Path.cwd() == tmp_path
    clean(home)


def test_a_component_that_begins_while_another_is_elsewhere_does_not_end_there(tmp_path: Path) -> None:
    """The second found the directory that the first had changed to, and went back to it when it ended last."""
    before, state = Path.cwd(), SharedState()
    with contextlib.ExitStack() as second:
        with state.kept():
            os.chdir(tmp_path)
            second.enter_context(state.kept())
        assert Path.cwd() == before
    assert Path.cwd() == before


FORKED = """
import os, sys
from drivetrain.pipelines.launcher.shared_state import SHARED_STATE
with SHARED_STATE.kept(), SHARED_STATE._lock:  # as another thread may hold it at the fork
    child = os.fork()
    if not child:
        with SHARED_STATE.kept():
            os._exit(0 if SHARED_STATE._running == 1 else 7)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_waits_for_no_component_of_its_parent() -> None:
    """In a process of its own: JAX, once loaded, warns at each fork."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


@pytest.mark.parametrize("timer", ["ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"])
def test_a_timer_of_a_component_ends_with_it(home: Home, pipe: Pipe, timer: str) -> None:
    """Its signal ends a process: it came when the run was complete, and the shell was told of a crash."""
    code = f"import signal; signal.setitimer(signal.{timer}, 9000)"
    before = signal.getitimer(getattr(signal, timer))  # pytest itself may have one
    try:
        result = run_pipeline(home, pipe(f'n = Make()\nMisbehave(n, code="""{code}""")\nUse(n)'))
        assert result.state == "COMPLETE"
        assert signal.getitimer(getattr(signal, timer))[0] <= before[0] < 9000
    finally:
        signal.setitimer(getattr(signal, timer), *before)


def test_a_timer_of_who_runs_it_goes_on(home: Home, pipe: Pipe) -> None:
    signal.setitimer(signal.ITIMER_PROF, 300)
    try:
        assert run_pipeline(home, pipe("Use(Make())")).state == "COMPLETE"
        assert signal.getitimer(signal.ITIMER_PROF)[0] > 200
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@pytest.mark.parametrize(
    ("code", "says", "users"),
    [
        ("sys.exit(3)", "the code called exit(3)", True),
        ("raise GeneratorExit", "GeneratorExit", False),
        ("shutil.rmtree(made(1).path.parent)", "", False),
        ("raise OSError(28, 'No space left on device')", "disk full while running Misbehave", True),
    ],
)
def test_a_component_that_misbehaves_fails_alone(home: Home, pipe: Pipe, code: str, says: str, users: bool) -> None:
    body = f'n = Make()\nMisbehave(n, code="""{code}""")\nUse(n)'
    result = run_pipeline(home, pipe(body))
    expected = "FAILED" if says else "COMPLETE"
    assert states(result.nodes) == {"Make": "COMPLETE", "Misbehave": expected, "Use": "COMPLETE"}
    assert says in result.nodes["Misbehave"].reason
    assert result.nodes["Misbehave"].user_error == users
    assert result.state == expected
    clean(home)


MUTE = "class Mute(Exception):\n    def __str__(self): raise TypeError('no')\nraise Mute"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('a\\0b')", "ValueError: a\\x00b"),
        ("raise FileNotFoundError('names \\udcff.csv')", "FileNotFoundError: names \\udcff.csv"),
        (MUTE, "Mute, whose text cannot be read: TypeError"),
        ("raise ValueError('x' * 5_000_000)", "characters are left out] xxx"),
    ],
)
def test_whatever_an_error_says_it_is_recorded(home: Home, pipe: Pipe, code: str, says: str) -> None:
    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={code!r})"))
    reason = result.nodes["Misbehave"].reason
    assert says in reason
    assert len(reason) < 5000
    shown = view(home, open_run(home, None))["Misbehave"]
    assert (shown.state, shown.reason) == ("FAILED", reason)
    assert "Traceback" in str(shown.error)
    assert len(str(shown.error)) < 300_000
    assert not home.store.executions(state="RUNNING")
    assert not home.store.claims()
    clean(home)


def test_an_output_whose_folder_is_gone_is_refused(home: Home, pipe: Pipe) -> None:
    body = 'Misbehave(Make(), code="globals().update(made=lambda t: (n := Numbers.new(), shutil.rmtree(n.path))[0])")'
    result = run_pipeline(home, pipe(body))
    assert result.nodes["Misbehave"].state == "FAILED"
    assert "has no content folder" in result.nodes["Misbehave"].reason
    clean(home)


def test_an_observer_that_fails_does_not_end_the_run(home: Home, pipe: Pipe, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise BrokenPipeError

    result = run_pipeline(home, pipe("Use(Make())"), observer=lambda run: Broken())  # type: ignore[arg-type, return-value]
    assert result.state == "COMPLETE"
    assert [record.message for record in caplog.records] == ["the run goes on unobserved: its observer failed"]


STEAL = """
from drivetrain.metadata import MetadataStore, Owner
flag = current().base / "stolen"
if not flag.exists():
    flag.touch()
    store = MetadataStore.open(flag.parent / ".drivetrain" / "metadata.db")
    held = store.claims()[0]
    while store.claim(held.cache_key, owner=Owner("elsewhere", "b", 1, ""), lease=3600) is None:
        time.sleep(0.05)
    store.close()
"""


def test_a_lost_lease_is_waited_out_and_staging_is_gone(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launching, "LEASE", 0.2)
    monkeypatch.setattr(type(home.store), "heartbeat", lambda self, claim: claim)
    notes: list[str] = []

    class Notes(NullObserver):
        def note(self, node: str, text: str) -> None:
            notes.append(text)
            if text.startswith("waiting for"):  # it is silent past its lease
                with home.store._db.write() as transaction:
                    transaction.run("UPDATE claim SET expires_at = 0")

    result = run_pipeline(home, pipe(f"Misbehave(Make(), code={STEAL!r})"), observer=lambda run: Notes())
    assert states(result.nodes) == {"Make": "COMPLETE", "Misbehave": "COMPLETE"}
    ended = [execution.state for execution in home.store.executions(component="parts:Misbehave")]
    assert ended == ["COMPLETE", "ABANDONED"]
    newest = home.store.executions(component="parts:Misbehave")[0]
    assert str(newest.properties["reason"]).startswith("its last execution was abandoned: process ")
    assert [note.split(":")[0] for note in notes][1:] == [
        "waiting for process 1 on elsewhere, which does the same work"
    ]
    assert "is lost" in notes[0]
    clean(home)


def test_a_claim_is_given_back_when_the_work_cannot_begin(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, *_: object, **__: object) -> None:
        raise InputError("no room")

    monkeypatch.setattr(type(home.store), "start", refuse)
    result = run_pipeline(home, pipe("Make()"))
    assert result.nodes["Make"].reason.endswith(": no room")
    assert home.store.executions(state="FAILED")[0].properties["reason"] == result.nodes["Make"].reason
    clean(home)


def test_staging_of_what_is_over_is_swept_and_of_what_runs_is_not(home: Home) -> None:
    store = home.store
    alive, over = store.start("C"), store.start("C")
    store.finish(over, "FAILED")
    for execution in (alive, over):
        home.payloads.stage("C", execution.uid, "numbers")
    home.sweep()
    assert [path.name for path in home.payloads.staging.iterdir()] == [alive.uid]


# -- signals


def start(folder: Path, home: Home, grace: float = 30.0) -> subprocess.Popen[str]:
    script = (
        "import sys, json; from pathlib import Path; from drivetrain.pipelines import *\n"
        f"from drivetrain.pipelines.runners import inline, beam; inline._GRACE = beam._GRACE = {grace}\n"
        "result = run_pipeline(Home(Path(sys.argv[2])), load_pipeline(Path(sys.argv[1])),"
        " options=RunOptions(runner=sys.argv[3]))\n"
        "print(json.dumps(result.to_json()))"
    )
    command = [sys.executable, "-c", script, str(folder), str(home.root), os.environ.get("SHOP_RUNNER", "inline")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def appears(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


DEAF = """
flag = current().base / "{name}"
if not flag.exists():
    flag.touch()
    while True:
        try:
            current().progress(0, None, "")
            time.sleep(0.02)
        except BaseException:
            (current().base / "{name}-asked").touch()
            time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_deaf_branches_do_not_keep_a_stopped_process(home: Home, pipe: Pipe, signals: int) -> None:
    code = {name: DEAF.format(name=name) for name in ("one", "two")}
    body = f"n = Make()\nMisbehave(n, code={code['one']!r})\nMisbehave.options(id='Second')(n, code={code['two']!r})"
    function = pipe(body)
    process = start(function.project, home, grace=1.0 if signals == 1 else 3600.0)
    appears(home.base / "one", process)
    appears(home.base / "two", process)
    process.send_signal(signal.SIGTERM)
    if signals == 2:
        appears(home.base / "one-asked", process)
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["state"] == "CANCELED"
    assert {name: node["state"] for name, node in answer["nodes"].items()} == {
        "Make": "COMPLETE", "Misbehave": "CANCELED", "Second": "CANCELED"
    }  # fmt: skip
    assert [run.state for run in list_runs(home)] == ["CANCELED"]
    assert resume(home).state == "COMPLETE"
    clean(home)


def test_a_stop_as_a_branch_is_heard_of_loses_nothing(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []

    class Torn(SimpleQueue[Any]):  # Any: both of the runner's
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            name = super().get(block, timeout)
            if threading.current_thread() is threading.main_thread():
                heard.append(name)
                if len(heard) == 2:  # the other has ended: one at work would be cancelled, or not, by chance
                    raise KeyboardInterrupt
            return name

    monkeypatch.setattr(inline, "SimpleQueue", Torn)
    monkeypatch.setattr(inline, "_GRACE", 3600.0)  # in vain: longer than a test may take
    result = run_pipeline(home, pipe("n = Make()\nUse(n)\nUse.options(id='Second')(n, amount=2)"))
    assert states(result.nodes) == {"Make": "COMPLETE", "Use": "COMPLETE", "Second": "COMPLETE"}
    assert sorted(map(str, heard)) == ["Second", "Use"]
    clean(home)


# -- resume


def test_resume_of_a_complete_run_runs_nothing(home: Home, pipe: Pipe) -> None:
    body = """
    Use(Make())
    with dt.on_exit() as run:
        Make.options(id="Last", cache=False)(label=run.state)
    """
    first = run_pipeline(home, pipe(body))
    before = len(home.store.executions())
    again = resume(home, first.run)
    assert (again.state, again.run) == ("COMPLETE", first.run)
    assert len(home.store.executions()) == before


def test_resume_makes_again_what_is_gone_and_checks_what_follows(home: Home, pipe: Pipe) -> None:
    first = run_pipeline(home, pipe("Use(Make())"))
    home.payloads.remove(first.nodes["Make"].outputs["numbers"][0].uri)
    assert states(resume(home).nodes) == {"Make": "COMPLETE", "Use": "CACHED"}


def test_resume_after_an_edit_says_what_to_do(home: Home, pipe: Pipe) -> None:
    function = pipe('Misbehave(Make(), code="1 / 0")')
    assert run_pipeline(home, function).state == "FAILED"
    parts = function.project / "parts.py"
    parts.write_text(parts.read_text() + "\nMENDED = True\n")
    refused = resume(home).nodes["Misbehave"]
    assert refused.user_error
    assert "was edited after the pipeline was built" in refused.reason
    assert "drivetrain run" in refused.reason


def test_resume_of_a_project_that_moved_says_so(home: Home, pipe: Pipe, tmp_path: Path) -> None:
    function = pipe('Misbehave(Make(), code="1 / 0")')
    run_pipeline(home, function)
    function.project.rename(tmp_path / "moved")
    refused = resume(home).nodes["Misbehave"]
    assert refused.user_error
    assert f"the project {function.project} is gone" in refused.reason


def test_a_run_of_an_unseen_process_is_taken_over_once_it_holds_no_lease(home: Home, pipe: Pipe) -> None:
    result = run_pipeline(home, pipe("Make()"))
    context = open_run(home, result.run).context
    elsewhere = Owner("elsewhere", "b", 1, "")
    facts = {"state": "RUNNING", "owner": elsewhere.to_dict()}
    context = home.store.update_context(context, facts)
    key = home.store.executions()[0].cache_key
    claim = home.store.claim(key or "", owner=elsewhere, lease=600)
    assert claim is not None
    execution = home.store.start("parts:Make", contexts=[context], cache_key=key, owner=elsewhere)
    with pytest.raises(InputError, match="being worked on by process 1 on elsewhere"):
        resume(home)
    home.store.finish(execution, "FAILED", claim=claim)
    assert resume(home).state == "COMPLETE"


def test_a_run_from_before_the_boot_is_interrupted(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_pipeline(home, pipe("Make()"))
    before = {**Owner.current().to_dict(), "boot_id": "another"}
    home.store.update_context(open_run(home, result.run).context, {"state": "RUNNING", "owner": before})
    monkeypatch.setattr(Owner, "rebooted", lambda self: self.boot_id == "another")
    assert runs.open_run(home, result.run).state == "INTERRUPTED"
    assert resume(home).state == "COMPLETE"


def test_a_run_of_another_machine_of_this_name_is_judged_by_its_lease(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clones share name and machine id: all that tells them apart from this machine before its boot is the lease."""
    result = run_pipeline(home, pipe("Make()"))
    clone = replace(Owner.current(), boot_id="another")
    home.store.update_context(open_run(home, result.run).context, {"state": "RUNNING", "owner": clone.to_dict()})
    claim = home.store.claim(runs.run_lease(result.run), owner=clone, lease=600)
    assert claim is not None
    assert open_run(home, result.run).state == "RUNNING"
    with pytest.raises(InputError, match="is being worked on by process"):
        resume(home)
    now = home.store.now()
    with monkeypatch.context() as later:
        later.setattr(MetadataStore, "now", lambda self: now + 601_000_000)
        assert open_run(home, result.run).state == "INTERRUPTED"
    home.store.release(claim)
    assert open_run(home, result.run).state == "INTERRUPTED"
    assert resume(home).state == "COMPLETE"


def test_a_run_holds_its_lease_until_its_end_is_recorded(
    home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased: list[bool | None] = []
    close = runs.close_run

    def closing(home: Home, run: runs.Run, state: RunState) -> None:
        leased.append(home.store.is_lease_over(runs.run_lease(run.id), Owner.current()))
        close(home, run, state)

    monkeypatch.setattr("drivetrain.pipelines.run.close_run", closing)
    run_pipeline(home, pipe("Make()"))
    monkeypatch.setattr("drivetrain.pipelines.runners.inline.run_inline", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_pipeline(home, pipe("Make()"))
    assert leased == [False, False]
    run = open_run(home, None).id
    assert home.store.is_lease_over(runs.run_lease(run), Owner.current())


def test_a_runner_that_breaks_ends_the_run(home: Home, pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, NodeResult]:
        raise RuntimeError("no cluster")

    monkeypatch.setattr("drivetrain.pipelines.runners.inline.run_inline", broken)
    with pytest.raises(RuntimeError, match="no cluster"):
        run_pipeline(home, pipe("Make()"))
    assert [run.state for run in list_runs(home)] == ["FAILED"]


def test_a_component_that_changes_its_input_fails_by_name_and_poisons_nothing(home: Home, pipe: Pipe) -> None:
    code = "f = next(f for f in numbers.content.rglob('*') if f.is_file()); f.chmod(0o644); f.write_text('-1')"
    result = run_pipeline(home, pipe(f'n = Make()\nMisbehave(n, code="""{code}""")'))
    assert states(result.nodes) == {"Make": "COMPLETE", "Misbehave": "FAILED"}
    assert "Misbehave changed its input numbers: content/" in result.nodes["Misbehave"].reason
    # Who reads it next is told, whatever process wrote it; what was made of it before is retired with it.
    result = run_pipeline(home, pipe("Use(Make())"))
    assert states(result.nodes) == {"Make": "CACHED", "Use": "FAILED"}
    assert "is not what was published: content/" in result.nodes["Use"].reason
    assert fsck(home.store, home.root, repair=True).repaired
    result = run_pipeline(home, pipe("Use(Make())"))
    assert states(result.nodes) == {"Make": "COMPLETE", "Use": "COMPLETE"}
    clean(home)


@pytest.mark.parametrize(
    ("trigger", "says", "times"),
    [
        # The table, or its index, does not give back what was written to it.
        ("BEFORE INSERT ON claim BEGIN SELECT RAISE(IGNORE); END", "is damaged: it has lost the claim", 1),
        # Whoever looks finds somebody else's claim, each time.
        (
            "AFTER INSERT ON claim BEGIN UPDATE claim SET token = NEW.token + 1, state = 'RELEASED' "
            "WHERE cache_key = NEW.cache_key; END; CREATE TRIGGER fault2 AFTER UPDATE OF owner ON claim BEGIN "
            "UPDATE claim SET token = NEW.token + 1, state = 'RELEASED' WHERE cache_key = NEW.cache_key; END",
            "Make was begun 4 times, more than its retries allow",
            4,
        ),
    ],
)
def test_a_task_is_not_begun_for_ever(home: Home, pipe: Pipe, trigger: str, says: str, times: int) -> None:
    connection = sqlite3.connect(home.root / "metadata.db")
    connection.executescript(f"CREATE TRIGGER fault {trigger}")
    connection.close()
    result = run_pipeline(home, pipe("Make()"))
    assert result.state == "FAILED"
    assert says in result.nodes["Make"].reason
    assert len([each for each in home.store.executions() if each.cache_key]) == times
