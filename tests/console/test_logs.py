"""`logs`: what nodes printed, listed, printed and followed; and what each runner puts there."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import Home, RunOptions, load_pipeline
from drivetrain.pipelines.launcher.logs import LogReader, Logs
from drivetrain.pipelines.launcher.runs import new_run
from drivetrain.pipelines.node import RECORD
from drivetrain.pipelines.project.secret import Secret
from drivetrain.tests.pipelines.faulty import waits
from hypothesis import given
from hypothesis import strategies as st

Command = Callable[..., Result]
COMMAND = [sys.executable, "-m", "drivetrain"]
SAID = ["hello from Talk 0", "hello from a child"]

TALK = """
import os, subprocess, sys, time
import drivetrain as dt
from drivetrain.pipelines import current

class Thing(dt.Artifact):
    value: int = 0

@dt.component
def Talk(*, item: int = 0, wait: float = 0.0, token: dt.Secret | None = None, fail: bool = False) -> Thing:
    print("hello from", current().node, item)
    subprocess.run(["echo", "hello from a child"], check=True)
    if token:
        print("token", token.reveal(), flush=True)
    current().note("worth knowing")
    if fail:
        raise ValueError(f"told to fail with {token.reveal() if token else 'nothing'}")
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline and not (current().base / "go").exists():
        print("still here", flush=True)
        time.sleep(0.1)
    print("good bye")
    made = Thing.new(value=item)
    (made.content / "x").write_text(str(item))
    return made

@dt.pipeline
def shop(wait: float = 0.0, fail: bool = False) -> None:
    Talk(wait=wait, token=dt.secret("THE_TOKEN"), fail=fail)
    dt.map_(lambda item: Talk.options(id="Each")(item=item), over=[1, 2])
"""


@pytest.fixture
def talking(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (shop / "pipeline.py").write_text(TALK)
    monkeypatch.setenv("THE_TOKEN", "s3cret-s3cret")
    return shop


def bodies(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (root / "logs").rglob("[!.]*.log")}


@pytest.mark.parametrize("runner", ["process", pytest.param("beam", marks=pytest.mark.beam)])
def test_what_nodes_print_is_kept_without_secrets(
    talking: Path, drivetrain: Command, last_json: Callable[[Result], dict[str, Any]], runner: str
) -> None:
    done = drivetrain("run", "shop", "--runner", runner, "--json")
    run = last_json(done)
    assert run["state"] == "COMPLETE", done.stderr
    listed = last_json(drivetrain("logs", "--json"))
    assert listed["run"] == run["run"]
    assert {(each["node"], each["state"]) for each in listed["logs"]} == {
        ("Talk", "COMPLETE"), ("Each[0]", "COMPLETE"), ("Each[1]", "COMPLETE")
    }  # fmt: skip
    for each in listed["logs"]:
        assert Path(each["path"]).stat().st_size == each["bytes"] > 0
        assert stat.S_IMODE(Path(each["path"]).stat().st_mode) == 0o600
    text = drivetrain("logs", run["run"], "Talk").stdout
    lines = text.splitlines()
    assert lines[0].startswith("=== Talk: attempt 1, 20")
    assert "process" in lines[0]
    assert lines[1:-1] == [*SAID, "token ***", "worth knowing", "good bye"]
    assert lines[-1].startswith("=== Talk: COMPLETE after ")
    assert "hello from Each[1] 2" in drivetrain("logs", run["run"], "Each[1]").stdout
    both = drivetrain("logs", run["run"], "Each").stdout
    assert "hello from Each[0] 1" in both
    assert "hello from Each[1] 2" in both
    assert last_json(drivetrain("logs", run["run"], "Talk", "--json"))["text"] == text
    assert "s3cret" not in "".join(bodies(Path(".drivetrain")).values())


def test_a_node_launched_alone_is_kept_and_seen(talking: Path, drivetrain: Command) -> None:
    """As in a container: what it prints goes to standard output too, and events stand between."""
    function = load_pipeline(talking)
    home = Home(Path(".drivetrain"))
    run = new_run(home, function.build(), function.project, function.values({}), RunOptions())
    home.close()
    place = ["--root", ".drivetrain", "--run", run.id, "--ir", run.pipeline.digest, "--node", "Talk"]
    command = [sys.executable, "-m", "drivetrain.pipelines.node", *place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # A record may stand amid a line that is printed in pieces.
    printed = [line for line in re.sub(f"{RECORD}.*\n", "", done.stdout).split("\n") if line]
    events = [json.loads(text) for text in re.findall(f"{RECORD}(.*)\n", done.stdout)]
    assert sorted(printed) == sorted([*SAID, "token s3cret-s3cret", "good bye"])
    assert [event["event"] for event in events] == ["started", "note", "ended"]
    text = drivetrain("logs", run.id, "Talk").stdout
    # So may what the node itself has to say, which does not go by way of what it prints.
    own = re.compile(r"=== Talk: attempt 1, .*\n|worth knowing\n|=== Talk: COMPLETE after .*\n")
    assert len(own.findall(text)) == 3
    said = [line for line in own.sub("", text).split("\n") if line]
    assert sorted(said) == sorted([*SAID, "token ***", "good bye"])
    assert RECORD not in text
    assert "s3cret" not in "".join(bodies(Path(".drivetrain")).values())


def test_the_inline_runner_writes_what_it_knows(talking: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "shop", "-p", "fail=true").exit_code == 2
    text = drivetrain("logs", "", "Talk").stdout
    assert drivetrain("logs", "Talk").stdout == text
    assert "there is no run 'Tulk'" in drivetrain("logs", "Tulk").stderr
    lines = text.splitlines()
    assert lines[0].startswith("=== Talk: attempt 1")
    assert lines[1] == "worth knowing"
    assert "Traceback (most recent call last):" in text
    assert "ValueError: told to fail with ***" in text
    assert "s3cret" not in text
    assert ": FAILED after" in text


def test_what_there_is_not_is_told(talking: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "shop").exit_code == 0
    assert "no node 'Nobody'" in drivetrain("logs", "", "Nobody").stderr
    assert "Each[7] has no log" in drivetrain("logs", "", "Each[7]").stderr
    assert "has 2 logs" in drivetrain("logs", "", "Each", "-f").stderr
    assert drivetrain("logs", "-f").exit_code == 2
    assert "there is no run" in drivetrain("logs", "2001").stderr
    assert "Each[0]" in drivetrain("logs").stdout
    (Path(".drivetrain") / "logs").rename("gone")
    assert "has no logs" in drivetrain("logs").stdout


def started(*more: str) -> tuple[subprocess.Popen[str], str]:
    """A run on the process runner that talks for a while, and its id."""
    command = [*COMMAND, "run", "shop", "--runner", "process", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (found := list(Path(".drivetrain/logs").glob("*/Talk.log"))):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    return process, found[0].parent.name


@pytest.mark.slow
def test_a_running_node_is_followed_until_it_ends(talking: Path) -> None:
    process, run = started("-p", "wait=600")
    follower = subprocess.Popen([*COMMAND, "logs", run, "Talk", "-f"], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    lines = []
    while "still here" not in (line := follower.stdout.readline()):
        lines.append(line)
        assert line
    assert process.poll() is None  # it is seen while it is printed
    Path("go").touch()
    rest = follower.stdout.read()
    follower.stdout.close()
    assert follower.wait(120) == 0
    assert "token ***\n" in lines
    assert rest.splitlines()[-2] == "good bye"
    assert rest.splitlines()[-1].startswith("=== Talk: COMPLETE")
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_following_ends_when_the_run_is_killed(talking: Path) -> None:
    process, run = started("-p", "wait=600")
    follower = subprocess.Popen([*COMMAND, "logs", run, "Talk", "-f", "--json"], stdout=subprocess.PIPE, text=True)
    waits(lambda: "still here" in "".join(bodies(Path(".drivetrain")).values()))
    time.sleep(1)
    assert follower.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    out, _ = follower.communicate(timeout=120)
    assert "still here" in json.loads(out)["text"]


# -- the files


@pytest.mark.parametrize("token", ["s3cret-s3cret", "-----BEGIN\nkey\nEND-----"])
def test_a_log_that_is_read_in_pieces_hides_what_lies_across_two(
    talking: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    home = Home(Path(".drivetrain"))
    pipeline = load_pipeline(talking)
    run = new_run(home, pipeline.build(), pipeline.project, pipeline.values({}), RunOptions())
    path = Logs(home.root, run.id).path("Talk")
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("THE_TOKEN", token)
    for size in (1, 2, 7, 31):
        monkeypatch.setattr("drivetrain.console.logs._LONGEST", size)
        for before in range(0, 40, 3):
            text = "é" * before + token + "\nüber\n" + token + token + "s3cret" + "x" * before + token + "ø"
            path.write_text(text)
            assert drivetrain("logs", run.id, "Talk").stdout == text.replace(token, "***")
    home.close()


@pytest.mark.slow
def test_a_log_larger_than_memory_is_printed(talking: Path) -> None:
    home = Home(Path(".drivetrain"))
    pipeline = load_pipeline(talking)
    run = new_run(home, pipeline.build(), pipeline.project, pipeline.values({}), RunOptions())
    path = Logs(home.root, run.id).path("Talk")
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for _ in range(130):  # MiB
            file.write((b"a line of a component that talks of its progress".ljust(127, b".") + b"\n") * (1 << 13))
    home.close()
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (120 << 20, 120 << 20))\n"
    limited += "from drivetrain.console.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", limited, "logs", run.id, "Talk"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=200))
def test_every_task_has_a_file_of_its_own_that_is_safe(task: str) -> None:
    logs = Logs(Path("/root"), "run")
    path = logs.path(task)
    assert path.parent == Path("/root/logs/run")
    assert len(os.fsencode(path.name)) <= 255
    assert "/" not in path.name
    assert path.name not in (".", "..")
    assert path != logs.path(f"{task}x")
    assert logs.path("Trainer[3,0]").name == "Trainer[3,0].log"


def test_a_full_disk_or_a_foreign_file_stops_no_task(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    logs = Logs(tmp_path, "run")
    logs.write("Talk", "lost")
    logs.redact("Talk")
    assert logs.tasks() == {}
    assert logs.size("Talk") == 0
    with logs.captured("Talk"):
        os.write(2, b"")


@pytest.mark.slow
def test_a_secret_is_redacted_however_late_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    late = tmp_path / "bin" / "tee"
    late.parent.mkdir()
    late.write_text(f'#!/bin/sh\nsleep 3\nexec {shutil.which("tee")} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setenv("PATH", f"{late.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("THE_TOKEN", "s3cret-s3cret")
    logs = Logs(tmp_path, "run")
    with logs.captured("Talk", visible=True):
        os.write(1, f"token {Secret('THE_TOKEN').reveal()}\n".encode())
    assert logs.path("Talk").read_text() == "token ***\n"
    assert capfd.readouterr().out == "token s3cret-s3cret\n"


def _read(reader: LogReader, *, last: bool = False) -> str:
    return "".join(reader.read(last=last))


@pytest.mark.parametrize("secret", ["s3cret-s3cret", "-----BEGIN\nkey-of-mine\nEND-----", "sixsix"])
def test_who_follows_a_log_misses_nothing_where_secrets_are_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """The log gets shorter meanwhile, and may be longer again by the next look."""
    logs = Logs(tmp_path, "run")
    logs.write("Talk", "before")
    start = logs.size("Talk")
    reader, late = LogReader(logs.path("Talk")), LogReader(logs.path("Talk"), start)
    with logs.path("Talk").open("a") as file:
        file.write(f"one {secret} two {secret}\n" * 3)
    texts, late_texts = _read(reader), _read(late)
    with logs.path("Talk").open("a") as file:
        file.write(f"three {secret}\nfo")
    monkeypatch.setattr("drivetrain.redaction._secrets", frozenset({secret}))
    logs.redact("Talk", start)
    with logs.path("Talk").open("a") as file:
        file.write("ur\n" + "five\n" * 100)
    rest = "three ***" + "\n" * secret.count("\n") + "\nfour\n" + "five\n" * 100
    lines = f"one {secret} two {secret}\n" * 3
    assert texts + _read(reader, last=True) == "before\n" + lines + rest
    assert late_texts + _read(late, last=True) == lines + rest


@given(st.lists(st.sampled_from(["append", "redact", "read"]), max_size=30), st.lists(st.integers(0, 40), max_size=30))
def test_a_log_that_is_read_between_any_two_changes_is_read_once(steps: list[str], lengths: list[int]) -> None:
    """A look between the redaction and what is appended next has nothing new to read: it ended with EINVAL."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("drivetrain.redaction._secrets", frozenset({"s3cret-s3cret"}))
        logs = Logs(Path(folder), "run")
        logs.folder.mkdir(parents=True)
        reader, text, appended = LogReader(logs.path("Talk")), "", ""
        for step, length in zip_longest(steps, lengths[: len(steps)], fillvalue=3):
            match step:
                case "append":
                    with logs.path("Talk").open("a") as file:
                        file.write(line := f"token s3cret-s3cret {'x' * int(length)}\n")
                    appended += line
                case "redact":
                    logs.redact("Talk")
                case _:
                    text += _read(reader)
        text += _read(reader, last=True)
        assert text == appended.replace("s3cret-s3cret", "***")


def test_what_is_appended_while_secrets_are_taken_out_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.redaction._secrets", frozenset({"s3cret-s3cret"}))
    logs = Logs(tmp_path, "run")
    logs.folder.mkdir(parents=True)
    logs.path("Talk").write_bytes(b"a s3cret-s3cret b\n" * 100_000)
    pread, looks = os.pread, 0

    def slow(descriptor: int, size: int, position: int) -> bytes:
        nonlocal looks
        looks += 1
        if looks == 2:
            logs.write("Talk", "meanwhile")
        data = pread(descriptor, size, position)
        if not data and looks < 1000:
            looks = 1000
            with logs.path("Talk").open("ab") as file:
                file.write(b"later\n")
        return data

    monkeypatch.setattr(os, "pread", slow)
    logs.redact("Talk")
    assert logs.path("Talk").read_bytes() == b"a *** b\n" * 100_000 + b"meanwhile\nlater\n"


def test_a_secret_that_is_no_utf_8_leaves_others_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.redaction._secrets", frozenset({"p\udce4ssw\udcf6rdlong", "correcthorsebattery"}))
    logs = Logs(tmp_path, "run")
    logs.folder.mkdir(parents=True)
    logs.path("Talk").write_bytes(b"one p\xe4ssw\xf6rdlong, the other correcthorsebattery\n")
    logs.redact("Talk")
    assert b"p\xe4ssw" not in logs.path("Talk").read_bytes()
    assert b"correct" not in logs.path("Talk").read_bytes()
