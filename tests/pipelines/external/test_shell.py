"""Commands and notebooks as components: what they are given, what they must give, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import drivetrain as dt
import psutil
import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.external import commands, placeholders
from drivetrain.pipelines.external.declare import CommandError
from drivetrain.pipelines.launcher.logs import Logs
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits
from drivetrain.tests.pipelines.processes import time_is_up_with

HEAD = """
    import drivetrain as dt

    class Rows(dt.Artifact):
        count: int = 0

    make = dt.shell_component(
        "Make",
        ["sh", "-c", 'seq "$1" > "$2/rows.txt"; echo made "$1"; printf "{\\\\"count\\\\": %s}" "$1" > "$3"', "sh",
         dt.external.parameter("n"), dt.external.output_path("rows"), dt.external.properties_path("rows")],
        outputs={"rows": Rows}, parameters={"n": 3},
    )
"""  # fmt: skip


class Text(dt.Artifact):
    """Something with a file."""


def python(code: str, *more: placeholders.Word) -> list[placeholders.Word]:
    return [sys.executable, "-c", code, *more]


def put(text: str) -> Text:
    artifact = Text.new()
    (artifact.content / "a.txt").write_text(text)
    return artifact


def show(*parts: placeholders.Word, **declared: Any) -> Any:
    """What a program gets as its arguments: a component that gives them back."""
    code = "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
    command = python(code, dt.external.output_path("argv"), *parts)
    return dt.shell_component("Show", command, outputs={"argv": list}, **declared)


def test_a_command_called_plainly() -> None:
    copy = dt.shell_component(
        "Copy",
        ["cp", dt.external.input_path("text") + "/a.txt", dt.external.output_path("copy")],
        inputs={"text": Text},
        outputs={"copy": Text},
    )
    assert (copy(put("hello")).copy.content / "a.txt").read_text() == "hello"


def test_values_become_text_and_come_back_with_their_types() -> None:
    parts = [dt.external.parameter(name) for name in ("whole", "real", "yes", "text", "some", "map")]
    argv = show(
        *parts, parameters={"whole": 3, "real": 0.5, "yes": True, "text": "a b", "some": [1, "x"], "map": {"b": 1}}
    )
    assert argv().argv == ["3", "0.5", "true", "a b", '[1,"x"]', '{"b":1}']
    back = dt.shell_component(
        "Back",
        ["printf True >", dt.external.output_path("yes"), "; echo 2.5 >", dt.external.output_path("real"), "; echo 7 >",
         dt.external.output_path("text"), "; echo '[1]' >",
         dt.external.output_path("some"), "; echo null >", dt.external.output_path("maybe"),
         "; echo '{}' >", dt.external.output_path("any"), "; echo b >", dt.external.output_path("one")],
        outputs={
            "yes": bool, "real": float, "text": str, "some": list[int], "maybe": str | None, "any": Any,
            "one": Literal["a", "b"],
        },
        shell=True,
    )()  # fmt: skip
    assert (back.yes, back.real, back.text, back.some) == (True, 2.5, "7", [1])
    assert (back.maybe, back.any, back.one) == (None, {}, "b")


def test_lists_and_what_is_left_out() -> None:
    argv = show(
        dt.external.input_path("many"),
        dt.external.if_present("one", "--one=" + dt.external.input_path("one"), "none"),
        dt.external.if_present("size", ["--size", dt.external.parameter("size")]),
        inputs={"many": list[Text], "one": Text | None},
        parameters={"size": int | None},
    )
    many = [put("a"), put("b")]
    assert argv(many).argv == [*(str(each.content) for each in many), "none"]
    assert argv([], one=many[0], size=4).argv == [f"--one={many[0].content}", "--size", "4"]
    with pytest.raises(InputError, match="2 arguments, which cannot be joined"):
        show("x" + dt.external.input_path("many"), inputs={"many": list[Text]})(many)


def test_files_environment_and_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.py").write_text("import json, os, sys\njson.dump(dict(os.environ), open(sys.argv[1], 'w'))")
    monkeypatch.setenv("A_TOKEN", "s3cret")
    run = dt.shell_component(
        "Run",
        [sys.executable, dt.external.file_path("script"), dt.external.output_path("seen")],
        files={"script": str(tmp_path / "script.py")},
        parameters={"mode": "fast", "token": dt.Secret},
        env={
            "GIVEN": dt.external.parameter("token"),
            "MODE": dt.external.parameter("mode"),
            "TOKEN": dt.secret("A_TOKEN"),
            "PLAIN": "x",
        },
        outputs={"seen": dict},
    )
    seen = run(token=dt.secret("A_TOKEN")).seen
    assert (seen["MODE"], seen["TOKEN"], seen["PLAIN"], seen["GIVEN"]) == ("fast", "s3cret", "x", "s3cret")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: dt.shell_component("X", "ls -l"), "the command is not a list"),
        (lambda: dt.shell_component("X", ["ls", 3]), "3 is not text"),  # type: ignore[list-item]
        (
            lambda: dt.shell_component("X", ["ls", dt.external.input_path("a")], inputs={"b": Text}),
            "the input 'a'.*\n.*has b",
        ),
        (
            lambda: dt.shell_component("X", ["ls", dt.external.parameter("a")]),
            "the parameter 'a', which is not declared",
        ),
        (lambda: dt.shell_component("X", ["ls"], env={"A": dt.external.parameter("a")}), "the parameter 'a'"),
        (lambda: dt.shell_component("X", ["ls"], inputs={"a": int}), "'a' is int"),
        (lambda: dt.shell_component("X", ["ls"], parameters={"a": Text}), "'a' is Text, no value"),
        (lambda: dt.shell_component("X", ["ls"], outputs={"a": object()}), "returns"),
        (lambda: dt.shell_component("X", ["ls"], parameters={"command": 1}), "'command' is taken twice"),
        (lambda: dt.shell_component("X", ["ls"], parameters={"a-b": 1}), "'a-b' is not a valid name"),
        (
            lambda: dt.shell_component("X", ["ls", dt.external.input_path("a")], inputs={"a": Text | None}),
            "may be left out",
        ),
        (
            lambda: dt.shell_component("X", ["ls", dt.external.parameter("a")], parameters={"a": dt.Secret}),
            "the secret 'a'",
        ),
        (lambda: dt.shell_component("X", [f"--a={dt.external.parameter('a')}"]), "has no text before"),
    ],
)
def test_what_is_declared_wrong_is_told_at_the_users_line(declare: Callable[[], object], message: str) -> None:
    with pytest.raises(BuildError, match=message) as error:
        declare()
    assert error.value.where is not None
    assert error.value.where.startswith(__file__)


@pytest.mark.parametrize(
    ("command", "outputs", "message"),
    [
        (
            ["sh", "-c", "echo one; echo two >&2; exit 7"],
            None,
            r"(?s)`sh -c .*` ended with exit code 7.*one.*\| two",
        ),
        (["sh", "-c", "kill -KILL $$"], None, "was ended by SIGKILL"),
        (["no-such-program"], None, "no-such-program cannot be started"),
        (["true"], {"a": Text}, "wrote nothing to its output 'a'"),
        (["true"], {"a": int}, "did not write its output 'a'"),
        (["sh", "-c", 'echo x > "$0"', dt.external.output_path("a")], {"a": int}, "wrote 'x' as 'a', not int"),
    ],
)
def test_faults_are_named(command: list[placeholders.Word], outputs: dict[str, Any] | None, message: str) -> None:
    with pytest.raises(dt.DrivetrainError, match=message):
        dt.shell_component("X", command, outputs=outputs)()


def test_what_a_command_leaves_running_is_ended(tmp_path: Path) -> None:
    # It leaves the group, closes the pipe and lives on.
    code = "import subprocess, sys\nchild = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
    code += "print(child.pid, file=open(sys.argv[1], 'w'))"
    left = dt.shell_component("X", python(code, dt.external.output_path("pid")), outputs={"pid": int})().pid
    waits(lambda: not lives(left))


def test_a_command_in_a_pipeline(home: Home, project: Callable[..., Path]) -> None:
    body = """
    count = dt.shell_component(
        "Count", ["wc -l <", dt.external.input_path("rows") + "/rows.txt", ">", dt.external.output_path("lines")],
        inputs={"rows": Rows}, outputs={"lines": int}, shell=True,
    )
    fail = dt.shell_component("Fail", ["sh", "-c", "test -e again || { touch again; exit 1; }"], parameters={"n": int})

    @dt.pipeline
    def shop(n: int = 3) -> None:
        rows = make(n=n)
        with dt.when(rows.rows.count > 2):
            fail.options(retries=1, backoff=0)(n=count(rows).lines)
        with dt.otherwise():
            make.options(id="More")()
        dt.map_(lambda size: make.options(id="Item")(n=size), [1, 2])
    """
    folder = project("shop", pipeline=HEAD + body)
    first = run_pipeline(home, load_pipeline(folder))
    states = {name: result.state for name, result in first.nodes.items()}
    assert states == {
        "Make": "COMPLETE", "Count": "COMPLETE", "Fail": "COMPLETE", "More": "SKIPPED",
        "Item[0]": "COMPLETE", "Item[1]": "COMPLETE",
    }  # fmt: skip
    log = Logs(home.root, first.run).path("Make").read_text()
    assert "\nmade 3\n" in log
    again = run_pipeline(home, load_pipeline(folder))
    assert {result.state for result in again.nodes.values()} == {"CACHED", "SKIPPED"}
    # The command is part of the key, by what it says.
    text = (HEAD + body).replace("echo made", "echo Made")
    changed = run_pipeline(home, load_pipeline(project("shop", pipeline=text)))
    assert changed.nodes["Make"].state == "COMPLETE"
    assert "words[2]" in changed.nodes["Make"].reason
    assert changed.nodes["Count"].state == "COMPLETE"  # its module was edited


def test_a_gate(home: Home, project: Callable[..., Path]) -> None:
    body = """
    class Verdict(dt.Artifact):
        passed: bool = True

    check = dt.shell_component(
        "Check", ["sh", "-c", 'touch "$0/seen"; echo "{\\\\"passed\\\\": false}" > "$1"',
                  dt.external.output_path("verdict"),
                  dt.external.properties_path("verdict")],
        inputs={"rows": Rows}, outputs={"verdict": Verdict}, gates="rows",
    )
    use = dt.shell_component("Use", ["true"], inputs={"rows": Rows})

    @dt.pipeline
    def shop() -> None:
        rows = make().rows
        check(rows)
        use(rows)
    """
    nodes = run_pipeline(home, load_pipeline(project("shop", pipeline=HEAD + body))).nodes
    assert (nodes["Check"].state, nodes["Use"].state) == ("COMPLETE", "BLOCKED")
    assert nodes["Check"].vetoed


def test_a_secret_that_a_command_prints_is_redacted(
    home: Home, project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "hunter22")
    body = """
    tell = dt.shell_component(
        "Tell", ["sh", "-c", 'echo "token $TOKEN"; exit 3'], env={"TOKEN": dt.secret("SHOP_TOKEN")})

    @dt.pipeline
    def shop() -> None:
        tell()
    """
    result = run_pipeline(home, load_pipeline(project("shop", pipeline=HEAD + body)))
    assert result.nodes["Tell"].state == "FAILED"
    assert "| token ***" in result.nodes["Tell"].reason
    log = Logs(home.root, result.run).path("Tell").read_text()
    assert "token ***" in log
    outputs = subprocess.run(["grep", "-r", "hunter22", str(home.root)], capture_output=True, check=False)
    assert outputs.stdout == b""


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_no_command_behind(
    home: Home, project: Callable[..., Path], tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    body = f"""
    run = dt.shell_component("Run", ["sh", "-c", "echo $PPID $$ > {pids}; sleep 300 & sleep 300"])

    @dt.pipeline
    def shop() -> None:
        run()
    """

    def kill() -> None:
        while not pids.exists() or len(pids.read_text().split()) < 2:
            time.sleep(0.05)
        os.kill(int(pids.read_text().split()[0]), 9)

    thread = threading.Thread(target=kill)
    thread.start()
    pipeline = load_pipeline(project("shop", pipeline=HEAD + body))
    result = run_pipeline(home, pipeline, options=RunOptions(runner="process", parallel=1))
    thread.join()
    assert result.nodes["Run"].state == "FAILED"
    _is_over(int(pids.read_text().split()[1]))


def test_a_files_content_is_part_of_the_key(home: Home, project: Callable[..., Path]) -> None:
    body = """
    run = dt.shell_component("Run", ["sh", dt.external.file_path("script")], files={"script": "run.sh"})

    @dt.pipeline
    def shop() -> None:
        run()
    """
    folder = project("shop", pipeline=HEAD + body)
    (folder / "run.sh").write_text("true")
    states = [run_pipeline(home, load_pipeline(folder)).nodes["Run"].state for _ in range(2)]
    (folder / "run.sh").write_text("echo more")
    assert [*states, run_pipeline(home, load_pipeline(folder)).nodes["Run"].state] == ["COMPLETE", "CACHED", "COMPLETE"]


def test_a_component_that_no_module_names(home: Home, project: Callable[..., Path]) -> None:
    body = """
    @dt.pipeline
    def shop() -> None:
        dt.shell_component("Run", ["true"])()
    """
    with pytest.raises(BuildError, match="cannot be named from another process"):
        load_pipeline(project("shop", pipeline=HEAD + body)).build()


SLEEP = """
    run = dt.shell_component("Run", ["sh", "-c", "echo $$ > {pid}; touch {pid}.told; sleep 300 & sleep 300"])

    @dt.pipeline
    def shop() -> None:
        run{options}()
"""


@pytest.mark.parametrize("runner", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_stopping_ends_the_whole_tree(
    home: Home, project: Callable[..., Path], tmp_path: Path, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, told = tmp_path / "pid", tmp_path / "pid.told"
    options = "" if runner == "inline" else ".options(timeout=3600)"
    text = SLEEP.replace("{pid}", str(pid)).replace("{options}", options)
    folder = project("shop", pipeline=HEAD + text)
    if runner == "process":
        time_is_up_with(told, "Run", monkeypatch)
        result = run_pipeline(home, load_pipeline(folder), options=RunOptions(runner="process", parallel=1))
        assert result.nodes["Run"].state == "FAILED"
        assert "3600" in result.nodes["Run"].reason
    else:
        code = f"from pathlib import Path; from drivetrain.pipelines import *; h = Home(Path({str(home.root)!r})); "
        code += f"run_pipeline(h, load_pipeline(Path({str(folder)!r})))"
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        waits(told.exists)
        child.send_signal(2)
        child.wait(120)
    _is_over(int(pid.read_text()))


def _is_over(group: int) -> None:
    """See that no process of a group lives, but for those that are just being killed."""
    waits(lambda: not [each for each in psutil.pids() if _group(each) == group and lives(each)])


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def test_output_is_heard_while_the_command_runs(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = dt.shell_component("X", ["sh", "-c", f"echo begun; until test -e {go}; do sleep 0.05; done; echo ended"])
    thread = threading.Thread(target=wait)
    thread.start()
    heard, deadline = "", time.monotonic() + 120
    while "begun" not in heard:
        assert time.monotonic() < deadline
        heard += capfd.readouterr().out
        time.sleep(0.05)
    assert "ended" not in heard
    go.touch()
    thread.join()
    assert "ended" in capfd.readouterr().out


def test_a_command_error_is_worth_another_try() -> None:
    assert issubclass(CommandError, dt.DrivetrainError)
    assert not issubclass(CommandError, InputError | BuildError)


def test_a_bar_that_is_drawn_over_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    code = "import sys\nfor i in range(3000): sys.stdout.write(f'\\r{i} of 3000')\nprint('\\r3000 of 3000\\nend')"
    dt.shell_component("X", python(code))()
    out = capfd.readouterr().out
    assert out.splitlines()[-2:] == ["3000 of 3000", "end"]
    assert out.count("of 3000") < 50
    dt.shell_component("X", python("print('x' * 3_000_000)"))()
    assert capfd.readouterr().out.count("x") == 3_000_000


def test_a_log_that_is_slower_than_the_command_loses_nothing(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    take = commands._Output._take

    def slow_take(output: commands._Output, text: str) -> None:
        time.sleep(0.02)
        take(output, text)

    monkeypatch.setattr(commands, "_GRACE", 0.01)
    monkeypatch.setattr(commands._Output, "_take", slow_take)
    dt.shell_component("X", python("print('x' * 300_000)"))()
    assert capfd.readouterr().out.count("x") == 300_000
