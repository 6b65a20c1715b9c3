"""A run through the real launcher: cache, conditions, gates, failures, resume, two processes, a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunOptions,
    RunResult,
    list_runs,
    load_pipeline,
    resume,
    run_pipeline,
)
from drivetrain.pipelines.launcher.partial import Selection

PARTS = """
    import os, signal, time
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.pipelines import Files, Fn, current, load, resolve_files

    class Numbers(dt.Artifact):
        total: int = 0
        good: bool = True

    class Verdict(dt.Artifact):
        passed: bool = True
        summary: str = ""

    def made(total: int, good: bool = True) -> Numbers:
        numbers = Numbers.new(total=total, good=good)
        (numbers.content / "total.txt").write_text(str(total))
        return numbers

    @dt.component
    def Make(*, count: int = 3, good: bool = True) -> Numbers:
        return made(count, good)

    @dt.component
    def Read(data: Files) -> Numbers:
        return made(sum(int(file.path.read_text()) for file in resolve_files(data).files))

    @dt.component
    def Double(numbers: Numbers, *, fn: Fn) -> Numbers:
        return made(load(fn)(int((numbers.content / "total.txt").read_text())))

    @dt.component
    def Add(left: Numbers, right: Numbers) -> Numbers:
        return made(left.total + right.total)

    @dt.component
    def Fail(numbers: Numbers) -> Numbers:
        raise ValueError("no such thing as a free lunch")

    @dt.component
    def Flaky(numbers: Numbers, *, flag: str) -> Numbers:
        if not Path(flag).exists():
            raise RuntimeError("not yet")
        return made(numbers.total)

    @dt.component(gates="numbers")
    def Check(numbers: Numbers, *, limit: int) -> Verdict:
        verdict = Verdict.new(passed=numbers.total <= limit, summary=f"{numbers.total} > {limit}")
        (verdict.content / "verdict.txt").write_text(str(verdict.passed))
        return verdict

    @dt.component
    def Slow(numbers: Numbers, *, seconds: float = 30.0) -> Numbers:
        begin = time.monotonic()
        (current().work_dir / "begun").write_text("")
        while time.monotonic() - begin < seconds and not (current().base / "go").exists():
            current().progress(0, None, "steps")
            time.sleep(0.01)
        return made(numbers.total)
"""
FEATURES = "from .helper import factor\n\ndef twice(x):\n    return factor() * x\n"
HELPER = "def factor():\n    return 2\n"
HEAD = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef shop(count: int = 3) -> None:\n"


class Shop:
    """A project and its root."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self.home = Home(root)

    def write(self, body: str) -> None:
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        (self.folder / "pipeline.py").write_text(HEAD + lines + "\n")

    def run(self, body: str | None = None, options: RunOptions | None = None, **parameters: object) -> RunResult:
        if body is not None:
            self.write(body)
        return run_pipeline(self.home, load_pipeline(self.folder), parameters, options)

    def states(self, result: RunResult) -> dict[str, str]:
        return {name: node.state for name, node in result.nodes.items()}

    def clean(self) -> None:
        report = fsck(self.home.store, self.home.root)
        assert report.clean, report.to_dict()


@pytest.fixture
def shop(project: Callable[..., Path], tmp_path: Path) -> Shop:
    return Shop(project("shop", parts=PARTS, features=FEATURES, helper=HELPER), tmp_path / "home" / ".drivetrain")


CHAIN = 'n = Make(count=count)\nDouble(n, fn="features:twice")'


def test_a_second_run_is_cached_and_says_of_which(shop: Shop) -> None:
    first = shop.run(CHAIN)
    assert first.state == "COMPLETE"
    assert shop.states(first) == {"Make": "COMPLETE", "Double": "COMPLETE"}
    assert first.nodes["Make"].reason == "first run"
    assert first.nodes["Double"].outputs["numbers"][0].properties["total"] == 6
    second = shop.run()
    assert shop.states(second) == {"Make": "CACHED", "Double": "CACHED"}
    assert first.run in second.nodes["Make"].reason
    assert [r.fingerprint for r in second.nodes["Double"].outputs["numbers"]] == [
        r.fingerprint for r in first.nodes["Double"].outputs["numbers"]
    ]
    shop.clean()


def test_a_changed_parameter_reruns_and_equal_content_cuts_off(shop: Shop) -> None:
    shop.run(CHAIN)
    third = shop.run(count=4)
    assert shop.states(third) == {"Make": "COMPLETE", "Double": "COMPLETE"}
    assert "count: 3 -> 4" in third.nodes["Make"].reason
    shop.write('n = Make(count=count, good=False)\nDouble(n, fn="features:twice")')
    fourth = shop.run()  # another key for Make, but the same content
    assert shop.states(fourth) == {"Make": "COMPLETE", "Double": "CACHED"}


def test_an_edited_helper_reruns_what_uses_it_and_nothing_else(shop: Shop) -> None:
    shop.run(CHAIN)
    (shop.folder / "helper.py").write_text("def factor():\n    return 3\n")
    edited = shop.run()
    assert shop.states(edited) == {"Make": "CACHED", "Double": "COMPLETE"}
    assert "helper.py" in edited.nodes["Double"].reason
    assert edited.nodes["Double"].outputs["numbers"][0].properties["total"] == 9
    (shop.folder / "unrelated.py").write_text("x = 1\n")
    os.utime(shop.folder / "helper.py")
    assert set(shop.states(shop.run()).values()) == {"CACHED"}


def test_files_count_by_content(shop: Shop) -> None:
    data = shop.folder / "n.txt"
    data.write_text("5")
    body = 'Read("n.txt")'
    assert shop.run(body).nodes["Read"].outputs["numbers"][0].properties["total"] == 5
    os.utime(data, (1, 1))
    assert shop.states(shop.run()) == {"Read": "CACHED"}
    data.write_text("6")
    changed = shop.run()
    assert shop.states(changed) == {"Read": "COMPLETE"}
    data.unlink()
    gone = shop.run()
    assert gone.state == "FAILED"
    assert gone.nodes["Read"].user_error
    assert "no file matches 'n.txt'" in gone.nodes["Read"].reason
    shop.clean()


def test_one_failing_branch_does_not_stop_the_others(shop: Shop) -> None:
    twice = 'fn="features:twice"'
    body = f'n = Make()\nf = Fail(n)\nd = Double(n, {twice})\nAdd(d, f)\nDouble.options(id="Last")(d, {twice})'
    result = shop.run(body)
    assert result.state == "FAILED"
    states = {"Make": "COMPLETE", "Fail": "FAILED", "Double": "COMPLETE", "Add": "BLOCKED", "Last": "COMPLETE"}
    assert shop.states(result) == states
    assert re.search(r"/parts.py:\d+: ValueError: no such thing as a free lunch$", result.nodes["Fail"].reason)
    assert result.nodes["Fail"].user_error
    execution = shop.home.store.executions(state="FAILED")[0]
    assert "Traceback" in (execution.error or "")
    assert "parts.py" in (execution.error or "")
    shop.clean()


@pytest.mark.parametrize(("limit", "state"), [(2, "STOPPED"), (3, "COMPLETE")])
def test_a_gate_vetoes_the_other_consumers_cached_or_not(shop: Shop, limit: int, state: str) -> None:
    body = f'n = Make()\nDouble(n, fn="features:twice")\nCheck(n, limit={limit})'
    for attempt in (shop.run(body), shop.run()):
        assert attempt.state == state
        assert attempt.nodes["Double"].state == (
            "BLOCKED" if state == "STOPPED" else "COMPLETE" if attempt.nodes["Check"].state == "COMPLETE" else "CACHED"
        )
        if state == "STOPPED":
            assert attempt.nodes["Double"].reason == "Check vetoed: 3 > 2"


def test_a_false_condition_skips_and_what_follows(shop: Shop) -> None:
    twice = 'fn="features:twice"'
    body = f"with dt.when(n.good):\n    d = Double(n, {twice})\nDouble.options(id='Last')(d, {twice})"
    body = "n = Make(good={good})\n" + body
    result = shop.run(body.format(good=False))
    assert result.state == "COMPLETE"
    assert shop.states(result) == {"Make": "COMPLETE", "Double": "SKIPPED", "Last": "SKIPPED"}
    assert result.nodes["Double"].reason == "Make.good is false"
    assert set(shop.states(shop.run(body.format(good=True))).values()) == {"COMPLETE"}


def test_resume_keeps_what_ended_well(shop: Shop, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    failed = shop.run(f'n = Make()\nf = Flaky(n, flag="{flag}")\nAdd(n, f)')
    assert shop.states(failed) == {"Make": "COMPLETE", "Flaky": "FAILED", "Add": "BLOCKED"}
    flag.touch()
    done = resume(shop.home, failed.run)
    assert done.state == "COMPLETE"
    assert shop.states(done) == {"Make": "COMPLETE", "Flaky": "COMPLETE", "Add": "COMPLETE"}
    assert len(shop.home.store.executions(component="parts:Make")) == 1
    assert [run.state for run in list_runs(shop.home)] == ["COMPLETE"]


def test_a_payload_that_is_gone_is_made_again(shop: Shop) -> None:
    first = shop.run(CHAIN)
    shop.home.payloads.remove(first.nodes["Double"].outputs["numbers"][0].uri)
    again = shop.run()
    assert shop.states(again) == {"Make": "CACHED", "Double": "COMPLETE"}
    assert "gone from the disk" in again.nodes["Double"].reason


def test_without_the_cache_everything_runs(shop: Shop) -> None:
    shop.run(CHAIN)
    assert set(shop.states(shop.run(options=RunOptions(cache=False))).values()) == {"COMPLETE"}
    body = 'n = Make.options(cache=False)(count=count)\nDouble(n, fn="features:twice")'
    assert shop.states(shop.run(body)) == {"Make": "COMPLETE", "Double": "CACHED"}


@pytest.mark.parametrize(
    ("returns", "says"),
    [("None", "returned NoneType"), ("Verdict.new()", "returned Verdict"), ("numbers", "that it did not make")],
)
def test_a_wrong_output_is_refused(shop: Shop, returns: str, says: str) -> None:
    parts = shop.folder / "parts.py"
    parts.write_text(
        parts.read_text() + f"\n@dt.component\ndef Bad(numbers: Numbers) -> Numbers:\n    return {returns}\n"
    )
    result = shop.run("Bad(Make())")
    assert result.state == "FAILED"
    assert says in result.nodes["Bad"].reason
    shop.clean()


def test_a_returned_number_that_json_cannot_hold_names_the_component(shop: Shop) -> None:
    parts = shop.folder / "parts.py"
    before = len(parts.read_text().splitlines())
    bad = '@dt.component\ndef Bad(numbers: Numbers) -> float:\n    return float("nan")\n'
    parts.write_text(f"{parts.read_text()}\n{bad}")
    reason = shop.run("Bad(Make())").nodes["Bad"].reason
    where, _, text = reason.partition(": ")
    assert where in {f"{parts}:{before + 2}", f"{parts}:{before + 3}"}
    assert text.startswith("Bad returned nan as 'value': nan has no place in JSON")


def test_parameters_are_read_and_checked(shop: Shop) -> None:
    assert shop.run(CHAIN, count="7").nodes["Make"].outputs["numbers"][0].properties["total"] == 7
    for given in ({"count": "many"}, {"count": 1.5}, {"cuont": 1}):
        with pytest.raises(InputError):
            shop.run(None, None, **given)


def start(shop: Shop, *arguments: str) -> subprocess.Popen[str]:
    script = (
        "import sys; from pathlib import Path; from drivetrain.pipelines import *\n"
        "home = Home(Path(sys.argv[2]))\n"
        "again = sys.argv[3:] == ['resume']\n"
        "result = resume(home) if again else run_pipeline(home, load_pipeline(Path(sys.argv[1])))\n"
        "import json; print(json.dumps(result.to_json()))"
    )
    command = [sys.executable, "-c", script, str(shop.folder), str(shop.home.root), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def begun(shop: Shop, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not list(shop.home.root.glob("work/nodes/*/begun")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_processes_do_the_same_work_once(shop: Shop) -> None:
    shop.write("Slow(Make(), seconds=0.7)")
    both = [start(shop) for _ in range(2)]
    results = [answer(process) for process in both]
    assert {result["state"] for result in results} == {"COMPLETE"}
    assert sorted(result["nodes"]["Slow"]["state"] for result in results) == ["CACHED", "COMPLETE"]
    assert len(shop.home.store.executions(component="parts:Slow", state="COMPLETE")) == 1
    shop.clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_and_resume_finishes(shop: Shop, number: int) -> None:
    shop.write("Add(Slow(Make(), seconds=600.0), Make.options(id='Other')())")
    process = start(shop)
    begun(shop, process)
    process.send_signal(number)
    result = answer(process)
    assert result["state"] == "CANCELED"
    assert result["nodes"]["Slow"]["state"] == "CANCELED"
    assert result["nodes"]["Add"]["state"] == "CANCELED"
    shop.clean()
    (shop.home.base / "go").touch()
    assert answer(start(shop, "resume"))["state"] == "COMPLETE"
    shop.clean()


def test_a_killed_run_is_resumed(shop: Shop) -> None:
    shop.write("Slow(Make(), seconds=600.0)")
    process = start(shop)
    begun(shop, process)
    process.kill()
    process.communicate()
    assert [run.state for run in list_runs(shop.home)] == ["INTERRUPTED"]
    (shop.home.base / "go").touch()
    result = answer(start(shop, "resume"))
    assert result["state"] == "COMPLETE"
    assert [e.state for e in shop.home.store.executions(component="parts:Slow")] == ["COMPLETE", "ABANDONED"]
    fsck(shop.home.store, shop.home.root, repair=True)
    shop.clean()


@pytest.mark.beam
def test_the_beam_runner_gives_the_same_content(shop: Shop) -> None:
    body = 'n = Make()\nf = Fail(n)\nd = Double(n, fn="features:twice")\nAdd(d, f)\nCheck(n, limit=3)'
    options = RunOptions(runner="beam", cache=False)
    inline, beam = shop.run(body), shop.run(body, options)
    assert shop.states(beam) == shop.states(inline)
    assert beam.state == inline.state == "FAILED"
    for name, node in inline.nodes.items():
        ours = [[r.fingerprint for r in records] for records in node.outputs.values()]
        theirs = [[r.fingerprint for r in records] for records in beam.nodes[name].outputs.values()]
        assert ours == theirs, name
    shop.clean()


def test_the_work_folder_of_a_plain_call_goes_with_the_process(tmp_path: Path) -> None:
    code = "from drivetrain.pipelines import current; (current().work_dir / 'rows').write_text('')"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_summary_holds_no_secret(home: Home, pipe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an error in it too, which a store's client may have told."""
    monkeypatch.setenv("TOKEN_OF_TEST", "hunter2hunter2")
    parts = """
        import os
        import drivetrain as dt
        from drivetrain.metadata import summarize, Summary

        class Told(dt.Artifact):
            how: str = ""

        @summarize.register
        def _told(told: Told) -> Summary:
            token = os.environ["TOKEN_OF_TEST"]
            if told.how == "raises":
                raise ValueError(f"refused {token}")
            return Summary(f"took {token}", ("token",), ((token,),))

        @dt.component
        def Tell(*, token: dt.Secret, how: str) -> Told:
            token.reveal()
            return Told.new(how=how)
    """
    body = """
        Tell.options(id="Raises")(token=dt.secret("TOKEN_OF_TEST"), how="raises")
        Tell(token=dt.secret("TOKEN_OF_TEST"), how="says")
    """
    result = run_pipeline(home, pipe(body, parts=parts))
    assert result.state == "COMPLETE"
    stored = (home.root / "metadata.db").read_bytes() + b"".join(path.read_bytes() for path in home.root.rglob("*-wal"))
    assert b"refused ***" in stored
    assert b"took ***" in stored
    assert b"hunter2" not in stored


@pytest.mark.parametrize("url", [None, "file://{}/bucket"])
def test_what_a_component_records_holds_no_secret(
    tmp_path: Path, pipe: Callable[..., PipelineFunction[..., object]], monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    """Names of metrics, and artifacts' properties, their keys and values; also of an execution that fails."""
    token = "hunter2-hunter2"
    monkeypatch.setenv("TOKEN_OF_TEST", token)
    parts = """
        import drivetrain as dt
        from drivetrain.pipelines import current

        class Told(dt.Artifact):
            facts: dict = {}
            text: str = ""

        @dt.component
        def Tell(*, token: dt.Secret, fail: bool = False) -> Told:
            value = token.reveal()
            current().metric(f"loss of {value}", 1.5)
            current().metric(f"by step of {value}", 2.5, step=1)
            (current().base / value.encode().hex()).write_text("1")
            (current().base / value.encode().hex()).read_text()
            if fail:
                raise ValueError("no")
            return Told.new(facts={value: [value, {"deep": value.encode().hex().upper()}]}, text=f"https://h/?token={value}")

        @dt.component
        def Answer(*, token: dt.Secret) -> str:
            return token.reveal()
    """
    body = """
        Tell(token=dt.secret("TOKEN_OF_TEST"))
        Tell.options(id="Fails")(token=dt.secret("TOKEN_OF_TEST"), fail=True)
        Answer(token=dt.secret("TOKEN_OF_TEST"))
    """
    home = Home(tmp_path / "home" / ".drivetrain", artifacts=None if url is None else url.format(tmp_path))
    result = run_pipeline(home, pipe(body, parts=parts))
    assert {name: node.state.value for name, node in result.nodes.items()} == {
        "Tell": "COMPLETE", "Fails": "FAILED", "Answer": "COMPLETE"
    }  # fmt: skip
    ((recorded,),) = result.nodes["Tell"].outputs.values()
    assert recorded.properties["facts"] == {"***": ["***", {"deep": "***"}]}
    for name in ("Tell", "Fails"):
        (execution,) = [each for each in home.store.executions() if each.properties["node"] == name]
        assert execution.properties["metrics"] == {"loss of ***": 1.5, "by step of ***": 2.5}
        assert execution.properties["metric_steps"] == {"by step of ***": [[1, 2.5]]}
    home.close()
    stored = b"".join(path.read_bytes() for path in home.root.glob("metadata.db*"))
    for spelled in (token, token.encode().hex(), token.encode().hex().upper()):
        assert spelled.encode() not in stored


TOLD = """
    import drivetrain as dt
    from drivetrain.pipelines import current

    class Thing(dt.Artifact):
        value: int = 0

    @dt.component
    def Make(*, value: int = 1) -> Thing:
        (current().base / "begun").touch()
        return Thing.new(value=value)

    @dt.component
    def Push(thing: Thing | None = None, *, token: dt.Secret, item: int = 0) -> Thing:
        token.reveal()
        return Thing.new()
"""


@pytest.mark.parametrize(("runner", "second"), [("inline", ""), ("process", ', env={"A": dt.secret("OTHER_TOKEN")}')])
def test_missing_secrets_are_one_error_before_the_first_node(
    home: Home,
    pipe: Callable[..., PipelineFunction[..., object]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    runner: str,
    second: str,
) -> None:
    monkeypatch.setenv("DRIVETRAIN_SECRETS", str(tmp_path))
    body = f"""
        numbers = Make()
        Push(numbers, token=dt.secret("FIRST_TOKEN"))
        Push.options(id="Second"{second})(numbers, token=dt.secret("FIRST_TOKEN"))
        Push.options(id="Third")(numbers, token=dt.secret("THIRD_TOKEN"))
        with dt.on_exit():
            Push.options(id="Last")(token=dt.secret("LAST_TOKEN"))
    """
    (tmp_path / "THIRD_TOKEN").write_text("third-of-them\n")
    shop, options = pipe(body, parts=TOLD), RunOptions(runner=runner, parallel=1)
    with pytest.raises(InputError) as raised:
        run_pipeline(home, shop, options=options)
    other = "OTHER_TOKEN (for Second), " if second else ""
    assert (
        raised.value.message == f"the secrets FIRST_TOKEN (for Push, Second), {other}LAST_TOKEN (for Last) are not set"
    )
    for name in ("FIRST_TOKEN", "LAST_TOKEN"):
        assert f"set the environment variable {name}, or write a file {tmp_path / name}" in str(raised.value.fix)
    assert not (home.base / "begun").exists()
    assert not home.store.contexts("run")
    monkeypatch.setenv("LAST_TOKEN", "last-of-them")  # what is on exit runs for a part too
    part = run_pipeline(home, shop, options=options, selection=Selection(only=("Make", "Third")))
    assert part.state == "COMPLETE"  # nobody asks for those of other nodes
    monkeypatch.setenv("OTHER_TOKEN", "other-of-them")
    monkeypatch.setenv("FIRST_TOKEN", "short")
    with pytest.raises(InputError, match=r"FIRST_TOKEN.*cannot be redacted"):
        run_pipeline(home, shop, options=options)
    monkeypatch.setenv("FIRST_TOKEN", "long-enough")
    assert run_pipeline(home, shop, options=options).state == "COMPLETE"


def test_a_secret_of_a_node_that_may_not_run_fails_no_run(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]]
) -> None:
    body = """
        numbers = Make()
        with dt.when(numbers.value > 5):
            pushed = Push.options(id="When")(numbers, token=dt.secret("NOBODY_HAS_IT"))
            Push.options(id="Within")(pushed, token=dt.secret("NOBODY_HAS_IT"))
        dt.map_(lambda item: Push.options(id="Each")(numbers, token=dt.secret("NOBODY_HAS_IT"), item=item), over=[])
    """
    result = run_pipeline(home, pipe(body, parts=TOLD))
    assert result.state == "COMPLETE"
    assert result.nodes["When"].state == "SKIPPED"


def test_a_resumed_run_asks_for_the_secrets_of_what_is_left(
    home: Home, pipe: Callable[..., PipelineFunction[..., object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
        numbers = Make()
        Push(numbers, token=dt.secret("FIRST_TOKEN"))
        with dt.when(numbers.value < 5):
            Push.options(id="When")(numbers, token=dt.secret("SECOND_TOKEN"))
    """
    monkeypatch.setenv("FIRST_TOKEN", "the-first-of-them")
    assert run_pipeline(home, pipe(body, parts=TOLD)).nodes["When"].state == "FAILED"
    monkeypatch.delenv("FIRST_TOKEN")
    monkeypatch.setenv("SECOND_TOKEN", "the-second-of-them")
    assert resume(home).state == "COMPLETE"
