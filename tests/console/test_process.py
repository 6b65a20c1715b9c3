"""The command as a process: signals, the import of nothing heavy, the last line of standard output."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.tests.pipelines.faulty import waits

HOME = Path(__file__).resolve().parents[2]
Command = Callable[..., Result]
COMMAND = [sys.executable, "-m", "drivetrain"]
HEAVY = ("jax", "flax", "apache_beam", "great_expectations", "pandas", "pyarrow", "scipy", "numpy")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=120, check=False)


def shown() -> dict[str, Any]:
    """The newest run, an empty one where there is none yet."""
    found: dict[str, Any] = json.loads(run("show", "--json").stdout or '{"state": null, "nodes": {}}')
    return found


@pytest.mark.slow
def test_the_process_ends_with_the_verbs_exit_code(shop: Path) -> None:
    assert run("run", "shop").returncode == 0
    assert run("run", "shop", "-p", "rows=11").returncode == 3
    assert run("run", "shop", "-p", "fail=user").returncode == 2
    assert run("run", "shop", "-p", "fail=crash").returncode == 2
    assert run("show", "nonsense").returncode == 2


def test_json_is_the_last_line_also_where_components_print(shop: Path) -> None:
    source = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(
        source.replace(
            "    made = Model.new()", "    import gc\n    print('hello', gc.isenabled())\n    made = Model.new()"
        )
    )
    done = run("run", "shop", "--json")
    lines = done.stdout.splitlines()
    assert lines[0] == "hello True"  # the garbage collector rests only while the verb is imported
    assert json.loads(lines[-1])["state"] == "COMPLETE"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.slow
def test_a_signal_cancels_the_run_and_leaves_a_clean_store(shop: Path, number: signal.Signals, parallel: bool) -> None:
    """In the main thread (one ready node) and in a node's own thread (several)."""
    if parallel:
        source = (shop / "pipeline.py").read_text()
        second = '    Train.options(id="Second")(examples, fn="helper:total", fail="no", seconds=seconds)\n'
        (shop / "pipeline.py").write_text(source.replace("    evaluation = Judge", f"{second}    evaluation = Judge"))
    process = subprocess.Popen(
        [*COMMAND, "run", "shop", "-p", "seconds=600", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_running("Train", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["state"] == "CANCELED"
    assert answer["nodes"]["Guard"]["state"] == "COMPLETE"
    assert answer["nodes"]["Train"]["state"] == "CANCELED"
    assert answer["nodes"]["Judge"]["state"] == "CANCELED"
    assert "Traceback" not in err
    assert shown()["state"] == "CANCELED"
    assert json.loads(run("fsck", "--json").stdout)["clean"] is True
    assert not list((shop.parent / ".drivetrain" / "work").rglob("content"))


# Does not end when it is asked to, and tells that it was.
DEAF = """
    while True:
        try:
            current().progress(0, None, "")
            time.sleep(0.02)
        except BaseException:
            (current().base / "asked").touch()
            time.sleep(600)
"""


@pytest.mark.slow
def test_a_second_signal_ends_components_that_do_not_look_up(shop: Path) -> None:
    source = (shop / "pipeline.py").read_text()
    second = '    Train.options(id="Second")(examples, fn="helper:total", fail="no", seconds=seconds)\n'
    source = source.replace("    evaluation = Judge", f"{second}    evaluation = Judge")
    (shop / "pipeline.py").write_text(source.replace("    made = Model.new()", f"    made = Model.new()\n{DEAF}"))
    patient = "from drivetrain.pipelines.runners import inline; inline._GRACE = 3600.0\n"
    patient += "from drivetrain.console import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", patient, "run", "shop"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until_running("Train", process)
    process.send_signal(signal.SIGINT)
    waits(lambda: Path("asked").exists() or process.poll() is not None)
    assert process.poll() is None  # it waits for its components to end
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "asked to stop, and did not" in out
    assert shown()["state"] == "CANCELED"
    assert run("fsck", "--repair").returncode == 0
    assert json.loads(run("fsck", "--json").stdout)["clean"] is True


@pytest.mark.slow
@pytest.mark.beam
def test_a_signal_cancels_a_run_on_beam_and_its_children(shop: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", "shop", "-p", "seconds=600", "--runner", "beam", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_running("Train", process)
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    answer = json.loads(out.splitlines()[-1])
    assert answer["state"] == "CANCELED"
    assert answer["nodes"]["Train"]["reason"] == "stopped while running"
    assert answer["nodes"]["Judge"]["state"] == "CANCELED"
    assert "Traceback" not in err
    assert json.loads(run("fsck", "--json").stdout)["clean"] is True


@pytest.mark.slow
def test_a_killed_run_is_interrupted_and_resume_finishes_it(shop: Path) -> None:
    process = subprocess.Popen([*COMMAND, "run", "shop", "-p", "seconds=600"], stdout=subprocess.PIPE)
    wait_until_running("Train", process)
    process.kill()
    process.communicate(timeout=120)
    killed = shown()
    assert killed["state"] == killed["nodes"]["Train"]["state"] == "INTERRUPTED"
    (shop.parent / "go").touch()
    done = json.loads(run("resume", "--json").stdout.splitlines()[-1])
    assert done["run"] == killed["run"]
    assert done["state"] == "COMPLETE"
    assert json.loads(run("fsck", "--json").stdout)["clean"] is True


def wait_until_running(node: str, process: subprocess.Popen[Any], seconds: float = 120) -> None:
    """Until the newest run shows that the node is at work."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        if shown()["nodes"].get(node, {}).get("state") == "RUNNING":
            return
        time.sleep(0.1)
    raise AssertionError("the node did not start")


def test_a_reader_that_leaves_is_no_error(shop: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "shop").exit_code == 0
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{' '.join(COMMAND)} doctor --help | true; {' '.join(COMMAND)} runs | true"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("option", ["", "--json"])
def test_a_reader_that_leaves_changes_no_verdict(shop: Path, drivetrain: Command, option: str) -> None:
    assert drivetrain("run", "shop").exit_code == 0
    with closing(sqlite3.connect(shop.parent / ".drivetrain" / "metadata.db")) as connection, connection:
        connection.execute("UPDATE execution SET state = 'FAILED'")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{' '.join(COMMAND)} audit verify {option} | true"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")


def imported(code: str) -> tuple[set[str], list[str]]:
    """Modules that are loaded in a fresh Python after it ran the code, and what it printed."""
    tell = "\nimport json; print('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}{tell}"], capture_output=True, text=True, timeout=120, check=True
    )
    *printed, names = done.stdout.splitlines()
    return set(json.loads(names)), [line for line in printed if line]


def imported_by(*arguments: str) -> tuple[set[str], list[str]]:
    """The same for the command with these arguments; of each module that it parses it prints "parsed PATH"."""
    watch = (
        "from drivetrain.pipelines.project import sources\ncomputed = sources._computed\n"
        "sources._computed = lambda path, text: print('parsed', path) or computed(path, text)\n"
    )
    run = "from drivetrain.console.cli import cli\ntry:\n    cli.main()\nexcept SystemExit:\n    pass"
    return imported(f"sys.argv = {['drivetrain', *arguments]!r}\n{watch}{run}")


def test_importing_drivetrain_imports_nothing_heavy() -> None:
    names, _ = imported("import drivetrain")
    assert "drivetrain" in names
    assert not {name for name in names if name.partition(".")[0] in (*HEAVY, "click", "rich", "sqlite3", "asyncio")}
    assert not {name for name in names if name.startswith("drivetrain.")} - {"drivetrain.errors", "drivetrain.lazy"}


def test_a_cached_run_imports_neither_heavy_libraries_nor_the_users_modules(shop: Path) -> None:
    light = (shop / "pipeline.py").read_text().replace("from drivetrain.data import Anomalies as Found, Anomaly\n", "")
    heavy = "    import pyarrow\n    from drivetrain.data import Anomalies as Found, Anomaly\n"
    light = light.replace("    rows = examples", f"{heavy}    rows = examples")
    (shop / "pipeline.py").write_text(light)
    first, printed = imported_by("run", "shop", "--json")
    assert {"shop.pipeline", "shop.helper", "pyarrow"} <= first
    assert any(line.startswith(f"parsed {shop}") for line in printed)
    for how in ((), ("--json",)):
        names, printed = imported_by("run", "shop", *how)
        assert "COMPLETE" in printed[-1] or "version 2 at" in printed[-1]
        assert sum(line.count("CACHED") for line in printed) == 5
        assert "shop.pipeline" in names
        assert "shop.helper" not in names
        assert not {name for name in names if name.partition(".")[0] in HEAVY}
        # What a cached run costs must not grow with the package: it loads a part of it, and parses none.
        ours = sorted(name for name in names if name.partition(".")[0] == "drivetrain")
        assert len(ours) <= 119, f"{len(ours)} modules; load late what few runs need: {ours}"
        assert not [line for line in printed if line.startswith(f"parsed {HOME}")]


def test_ctrl_c_while_the_command_is_imported_gives_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")  # the first import of the command line's
    ended = subprocess.run(
        [sys.executable, "-m", "drivetrain", "runs"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, "cancelled\n")


@pytest.mark.parametrize("harm", ["import sys; sys.stdout = None", "import sys; sys.setrecursionlimit(60)"])
def test_what_a_component_takes_from_the_process_is_there_again_for_the_verb(shop: Path, harm: str) -> None:
    source = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(source.replace("    made = Model.new()", f"    made = Model.new()\n    {harm}"))
    done = run("run", "shop", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "COMPLETE"


LEAVES = """
import atexit, threading, time
from pathlib import Path

import drivetrain as dt
import duckdb

HERE = Path(__file__).parent


def late():
    time.sleep(0.3)
    (HERE / "thread").touch()


@dt.component
def Leave() -> int:
    atexit.register((HERE / "handler").touch)
    threading.Thread(target=late).start()
    print("last words", end="")
    return duckdb.sql("SELECT 7").fetchall()[0][0]


@dt.pipeline
def leaves():
    Leave()
"""


def test_threads_and_exit_handlers_of_components_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "leaves").mkdir()
    (tmp_path / "leaves" / "pipeline.py").write_text(LEAVES)
    command = [sys.executable, "-m", "drivetrain", "run", "leaves", "--root", "root"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "last words" in done.stdout
    assert "leak" not in done.stderr  # what checks for leaks as its module is taken apart has nothing to say
    assert {path.name for path in (tmp_path / "leaves").iterdir()} >= {"thread", "handler"}


def test_a_profiler_gets_its_turn(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cProfile", "-m", "drivetrain", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "function calls" in done.stdout
