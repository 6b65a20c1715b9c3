"""A pipeline of every kind of node that can be cut down at any step of its launch, and what must be true afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from drivetrain.console.session import view
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, PipelineFunction, RunResult, load_pipeline, open_run
from drivetrain.pipelines.launcher.processes import MARK

PARTS = """
import os, signal, sys, time
from typing import NamedTuple
import drivetrain as dt
from drivetrain.metadata import MetadataStore, writes
from drivetrain.metadata.payload_local import LocalPayloads
from drivetrain.pipelines import current
from drivetrain.pipelines.launcher import home as homes

class Numbers(dt.Artifact):
    total: int = 0

class Both(NamedTuple):
    first: Numbers
    second: Numbers

def made(total: int) -> Numbers:
    numbers = Numbers.new(total=total)
    (numbers.content / "total.txt").write_text(str(total))
    return numbers

def flag(name: str) -> bool:
    "Whether this is the first time that it is asked."
    path = current().base / name
    if path.exists():
        return False
    path.touch()
    return True

def line(text: str) -> None:
    with (current().base / "lines.txt").open("a") as file:
        file.write(text + "\\n")

@dt.component
def Make(*, count: int) -> Numbers:
    line(current().node)
    return made(count)

@dt.component
def Count(numbers: Numbers) -> int:
    return numbers.total

@dt.component
def Items(*, many: int) -> list[int]:
    return list(range(many))

@dt.component
def Pair(*, item: int) -> Both:
    return Both(made(item), made(item * item))

@dt.component
def Add(left: Numbers, right: Numbers | None = None) -> Numbers:
    line(current().node)
    return made(left.total + (right.total if right else 0))

@dt.component
def Sum(numbers: list[Numbers]) -> Numbers:
    return made(sum(one.total for one in numbers))

@dt.component
def Flaky(numbers: Numbers) -> Numbers:
    if flag("tried"):
        raise ValueError("the first time")
    return made(numbers.total + 1)

@dt.component
def Waits(numbers: Numbers, *, name: str, seconds: float = 240.0) -> Numbers:
    (current().base / name).touch()
    begin = time.monotonic()
    while time.monotonic() - begin < seconds and not (current().base / "go").exists():
        current().progress(0, None, "")
        time.sleep(0.02)
    return made(numbers.total)

@dt.component
def Stubborn(numbers: Numbers) -> Numbers:
    line(current().node)
    sys.modules["__main__"]._GRACE = 240.0  # of the worker that it keeps from ending
    (current().base / "begun").touch()
    while not (current().base / "go").exists():
        try:
            time.sleep(0.02)
        except BaseException:
            pass
    return made(numbers.total)

@dt.component
def Bulky(numbers: Numbers, *, place: str) -> Numbers:
    bulky = made(numbers.total)
    folders = {"content": bulky.content, "extra": bulky.extra, "work": current().work_dir}
    (folders[place] / "bulk.bin").write_bytes(b"x" * 6_000_000)
    return bulky

@dt.component
def Last(*, state: str) -> str:
    line(f"Last {state}")
    return "told"

# Where the variable says "place/node", the process dies there, once.
place, _, node = os.environ.get("DRIVETRAIN_TEST_CUT", "").partition("/")

def cut(name, task):
    if name == place and (task or "").partition("[")[0] == node and flag_of(name, task):
        os.kill(os.getpid(), signal.SIGKILL)

def flag_of(name, task):
    path = os.path.join(os.environ["DRIVETRAIN_TEST_BASE"], f"cut-{name}-{node}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def wrapped(owner, attribute, before, after, task):
    real = getattr(owner, attribute)
    def call(*args, **kwargs):
        cut(before, task(*args, **kwargs))
        result = real(*args, **kwargs)
        cut(after, task(*args, **kwargs))
        return result
    setattr(owner, attribute, call)

if place and not hasattr(MetadataStore, "cut"):
    MetadataStore.cut = True
    def by_name(self, *args, properties=None, **_):
        return (properties or {}).get("node")

    def by_record(self, execution, *_, **__):
        return execution.properties["node"]

    wrapped(MetadataStore, "start", "claimed", "started", by_name)
    wrapped(MetadataStore, "record", "before-record", "recorded", by_name)
    wrapped(MetadataStore, "publish", "renamed", "committed", by_record)
    wrapped(MetadataStore, "finish", "before-finish", "finished", by_record)
    wrapped(LocalPayloads, "publish", "staged", "first-renamed", lambda self, staged, uri, *_: uri.split("/")[1])
    # What a transaction writes, before and after, while nothing of it is committed.
    wrapped(writes, "insert_execution", "inserting", "attached", by_name)
    wrapped(writes.Publishing, "publish", "moving", "output-stored", lambda it, *_: by_record(it, it.moved))
"""

PIPELINE = """
import drivetrain as dt
from .parts import *

@dt.pipeline
def shop(count: int = 3, many: int = 3) -> None:
    n = Make(count=count)
    size = Count(n)
    items = Items(many=many)

    def each(item):
        both = Pair(item=item)
        return Add.options(id="Both")(both.first, both.second)

    total = Sum(dt.map_(each, over=items))
    with dt.when(size > 2):
        big = Make.options(id="Big")(count=10)
    with dt.otherwise():
        small = Make.options(id="Small")(count=1)
    joined = Add.options(id="Join")(dt.one_of(big, small), dt.optional(small))
    mended = Flaky.options(retries=1, backoff=0.01)(total)
    Add.options(id="Fresh", cache=False)(joined, mended)
    Make.options(id="Twin")(count=10)
    with dt.on_exit() as run:
        Last.options(cache=False)(state=run.state)
"""

DRIVER = """
import json, sys
from pathlib import Path
from drivetrain.pipelines import Home, RunOptions, load_pipeline, resume, run_pipeline
from drivetrain.pipelines.runners import children, inline
children.GRACE = inline._GRACE = 60.0
root, project, runner, values = sys.argv[1:]
home = Home(Path(root))
result = resume(home) if runner == "resume" else run_pipeline(
    home, load_pipeline(Path(project)), json.loads(values), RunOptions(runner=runner, parallel=2))
print(json.dumps(result.to_json()))
"""


def write(folder: Path, pipeline: str = PIPELINE) -> PipelineFunction[..., object]:
    """The project `shop` in a folder."""
    shop = folder / "shop"
    shop.mkdir(exist_ok=True)
    (shop / "parts.py").write_text(PARTS)
    (shop / "pipeline.py").write_text(pipeline)
    return load_pipeline(shop)


def body(text: str) -> str:
    """The text of a pipeline with that body."""
    head = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef shop(count: int = 3) -> None:\n"
    return head + textwrap.indent(textwrap.dedent(text).strip(), "    ") + "\n"


def start(
    home: Home,
    project: Path,
    runner: str = "inline",
    values: dict[str, object] | None = None,
    *,
    cut: str = "",
    under: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """A run (or the newest one resumed, where the runner is "resume") in a process of its own."""
    home.base.mkdir(parents=True, exist_ok=True)
    command = [*under, sys.executable, "-c", DRIVER, str(home.root), str(project), runner, json.dumps(values or {})]
    # What it starts carries the mark: so it is found, whatever becomes of its parent.
    environment = {"DRIVETRAIN_TEST_CUT": cut, "DRIVETRAIN_TEST_BASE": str(home.base), MARK: mark(home)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed, once it has ended by itself."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def mark(home: Home) -> str:
    """What the processes of a home are known by."""
    return "faults" + str(home.base).replace(":", "-")  # a colon parts two marks


def left(home: Home) -> list[psutil.Process]:
    """The processes of a home that live."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and mark(home) in process.environ().get(MARK, "").split(":"):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def appears(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait for a file that the process makes."""
    waits(lambda: path.exists() or process.poll() is not None)
    assert path.exists(), process.communicate()


def waits(until: Callable[[], object]) -> None:
    """Wait until something is true, for as long as it may take on a machine that does much else."""
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shown(home: Home) -> dict[str, str]:
    """What `show` tells of the newest run: its state under "", and that of every task."""
    run_view = view(home, open_run(home, None))
    return {"": run_view.state, **{node.id: node.state for node in run_view}}


def fingerprints(result: RunResult) -> dict[str, list[str]]:
    """What each task made."""
    return {
        name: [record.fingerprint for _, records in sorted(node.outputs.items()) for record in records]
        for name, node in result.nodes.items()
    }


def settled(home: Home, result: RunResult, undisturbed: dict[str, list[str]], *, ends: int = 1) -> None:
    """The law: a run that was cut down and resumed is as one that was not, and nothing of the cut is left.

    What runs on exit does so at each of the run's ends.
    """
    assert result.state == "COMPLETE", {name: node.reason for name, node in result.nodes.items()}
    assert fingerprints(result) == undisturbed
    assert shown(home) == {"": "COMPLETE", **{name: node.state for name, node in result.nodes.items()}}
    run = open_run(home, result.run).context
    published = Counter(e.properties["node"] for e in home.store.executions(context=run, state="COMPLETE"))
    assert published.pop("Last") == ends
    assert set(published.values()) <= {1}, published
    assert not home.store.executions(state="RUNNING")
    assert not home.store.claims()
    assert not list(home.payloads.staging.glob("*"))
    waits(lambda: not left(home))
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()


def kill(process: subprocess.Popen[str]) -> None:
    """As the kernel does it when memory runs out."""
    process.send_signal(signal.SIGKILL)
    process.communicate()
