"""What verbs print: no secret, nothing that steers the terminal, and a run goes on where nothing can be printed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.terminal import echo, lost_output, output_while_read

Command = Callable[..., Result]
COMMAND = f"{sys.executable} -m drivetrain"
ESCAPE = "\x1b]0;owned\x07\x9b2J\u202e"


@pytest.fixture
def told(shop: Path) -> Path:
    """The project, whose Make notes a secret and what would steer a terminal, and fails by it where `rows` is 0."""
    source = (shop / "pipeline.py").read_text()
    source = source.replace("def Make(rows: int)", "def Make(rows: int, token: dt.Secret)").replace(
        "    made = Examples.new(rows",
        f"    current().note(f'{{token.reveal()!r}} {ESCAPE}')\n    if not rows:\n"
        f"        raise InputError(f'no rows for {{token.reveal()}} {ESCAPE}', fix='x')\n    made = Examples.new(rows",
        1,
    )
    (shop / "pipeline.py").write_text(source.replace("Make(rows)", "Make(rows, token=dt.secret('SHOP_TOKEN'))"))
    return shop


@pytest.mark.parametrize("rows", [0, 3])
def test_no_verb_prints_a_secret_or_steers_the_terminal(
    told: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "it's 4 $ecret")
    ran = drivetrain("run", "shop", "-p", f"rows={rows}")
    shown = [drivetrain(*verb) for verb in (["show"], ["runs"], ["show", "--json"], ["why", "Make"], ["tag"])]
    text = "".join(result.stdout + result.stderr for result in (ran, *shown))
    assert "4 $ecret" not in text
    assert "owned" in text
    assert not set(ESCAPE) & {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert not [path for path in Path(".drivetrain").rglob("*") if path.is_file() and b"4 $ecret" in path.read_bytes()]


@pytest.mark.parametrize("verb", [["run", "nowhere" + ESCAPE], ["bundle", "show", "no" + ESCAPE], ["fly" + ESCAPE]])
def test_an_error_does_not_steer_the_terminal(shop: Path, drivetrain: Command, verb: list[str]) -> None:
    result = drivetrain(*verb)
    assert result.exit_code == 2
    assert "owned" in result.stderr
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(result.stderr)


@pytest.mark.parametrize("url", ["https://T0KEN123@host/x", "s3://b/x?sig=T0KEN123", "postgresql://a:T0KEN123@h/d"])
@pytest.mark.parametrize("where", ["the shell", "the pipeline"])
def test_a_url_with_credentials_is_refused_before_anything_is_written(
    shop: Path, drivetrain: Command, url: str, where: str
) -> None:
    if where == "the pipeline":
        source = (shop / "pipeline.py").read_text()
        (shop / "pipeline.py").write_text(source.replace('"serving/shop"', json.dumps(url)))
        result = drivetrain("run", "shop")
    else:
        result = drivetrain("run", "shop", "-p", f"fail={url}")
    assert result.exit_code == 2
    assert "which would be stored with the run" in result.stderr
    assert "T0KEN123" not in result.output
    assert not [path for path in Path(".drivetrain").rglob("*") if path.is_file() and b"T0KEN" in path.read_bytes()]


@pytest.mark.parametrize("whole", [False, True])
def test_what_prints_goes_on_where_nobody_reads_it(monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    for name in ("stdout", "stderr"):
        reading, writing = os.pipe()
        os.close(reading)
        if whole:
            os.dup2(os.open("/dev/full", os.O_WRONLY), writing)
        monkeypatch.setattr(sys, name, os.fdopen(writing, "w"))
        print("said before", file=getattr(sys, name))
    before = sys.stdout, sys.stderr
    with output_while_read():
        for stream in (sys.stdout, sys.stderr):  # as a component does
            print("é" * 10_000, file=stream, flush=True)
            print("without a flush", file=stream)
        echo("an event")
        echo("a warning", err=True)
    assert (sys.stdout, sys.stderr) == before
    assert isinstance(lost_output(), OSError if whole else type(None))
    while lost_output():
        pass
    for stream in before:
        stream.close()


def test_a_descriptor_that_a_component_closes_is_one_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for late in (False, True):
        reading, writing = os.pipe()
        with os.fdopen(writing, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            with output_while_read():
                os.close(writing)
                if not late:
                    print("during the run", flush=True)
            print("after the run", flush=True)
            assert lost_output() is None
        os.close(reading)


def test_nothing_is_missed_that_standard_error_says_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        for _ in range(2):
            echo("error: it is so", err=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "code"),
    [
        (f"{COMMAND} run shop >&- 2>&-", 0),
        (f"{COMMAND} run shop <&- >&-", 0),
        (f"{COMMAND} run shop > /dev/full", 2),
        (f"set -o pipefail; {COMMAND} run shop | true", 0),
        (f"set -o pipefail; {COMMAND} run shop --json 2>&1 | true", 0),
        (f"set -o pipefail; {COMMAND} run shop --json > out; {COMMAND} runs | true", 0),
        (f"PYTHONIOENCODING=ascii {COMMAND} run shop -p limit=3", 0),
        (f"LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 {COMMAND} run shop", 0),
    ],
)
def test_a_run_is_carried_out_wherever_its_output_goes(shop: Path, shell: str, code: int) -> None:
    (shop / "helper.py").write_text("def total(rows):\n    print('é 漢 …')\n    return sum(rows.values())\n")
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    shown: dict[str, Any] = json.loads(
        subprocess.run([*COMMAND.split(), "show", "--json"], capture_output=True, text=True, check=True).stdout
    )
    assert shown["state"] == "COMPLETE"
    clean = subprocess.run([*COMMAND.split(), "fsck"], capture_output=True, text=True, check=False)
    assert clean.returncode == 0, clean.stdout
