"""What orchestration costs beyond the work itself: building, launching, the cache, loops, a cold shell.

    python benchmarks/orchestration.py [--repeat 3] [--items 1000]

Every component does next to nothing, so that what is measured is drivetrain's own: keys, claims, staging, publishing
with fsync, the store. Wall seconds (a user waits for those), with CPU seconds beside them; the disk's own share is
told by what writing and syncing as many small files takes by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from drivetrain.benchmarks.common import Bars, Timing, report, timed
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, load_pipeline, run_pipeline
from drivetrain.pipelines.kubeflow.compiler import compile_pipeline
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference

NODES = 200
RUNNERS = (("inline", "inline"), ("process", "process, warm pool"))
BARS: Bars = {
    "build 200 nodes: s": (0.2, True),
    "200 nodes for Kubeflow: s": (0.5, True),
    "inline: ms a node": (5.0, True),
    "process, warm pool: ms a node": (150.0, True),
    "200 nodes, all cached: s": (1.0, True),
    "map of 1,000 items on 2 workers: s": (30.0, True),
    "hello, two nodes, cold shell: s": (2.0, True),
}
PARTS = """
import drivetrain as dt

class Number(dt.Artifact):
    value: int = 0

@dt.component
def First(*, value: int = 0) -> Number:
    return made(value)

@dt.component
def Next(number: Number, *, value: int = 1) -> Number:
    return made(number.value + value)

@dt.component
def Last(*, values: list[int]) -> int:
    return sum(values)

def made(value: int) -> Number:
    number = Number.new(value=value)
    (number.content / "value.txt").write_text(str(value))
    return number
"""
CHAINS = """
import drivetrain as dt
from .parts import First, Next

@dt.pipeline
def chains(seed: int = 0) -> None:
    for chain in range(10):
        number = First.options(id=f"First{chain}")(value=seed)
        for step in range(19):
            number = Next.options(id=f"Next{chain}_{step}")(number, value=chain * 100 + step)
"""
ITEMS = """
import drivetrain as dt
from .parts import First, Last

@dt.pipeline
def items(many: list[int]) -> None:
    Last(values=dt.map_(lambda item: First(value=item), over=many, max_parallel=2).value)
"""
KFP_COMPONENT = """
name: next
inputs: [{name: number, type: Integer}, {name: value, type: Integer}]
outputs: [{name: out, type: Integer}]
implementation:
  container:
    image: image:1
    command: [sh, {inputValue: number}, {inputValue: value}, {outputPath: out}]
"""
HELLO = """
import drivetrain as dt

@dt.component
def Hello(*, name: str) -> str:
    return f"hello {name}"

@dt.component
def Shout(*, text: str) -> str:
    return text.upper()

@dt.pipeline
def hello(name: str = "world") -> None:
    Shout(text=Hello(name=name))
"""


def project(folder: Path, name: str, text: str) -> Path:
    """A project with the components above."""
    (folder / name).mkdir()
    (folder / name / "parts.py").write_text(PARTS)
    (folder / name / "pipeline.py").write_text(text)
    return folder / name


def files(folder: Path) -> None:
    """As many small files as 200 nodes publish, written and synced: two each, in a folder of their own."""
    for number in range(NODES):
        payload = folder / str(number)
        payload.mkdir(parents=True)
        for name in ("content", "manifest"):
            with (payload / name).open("w") as file:
                file.write("0" * 300)
                file.flush()
                os.fsync(file.fileno())
    shutil.rmtree(folder)


def median(work: Callable[[int], object], repeat: int) -> Timing:
    """Of so many calls, after none that does not count: each gets its number."""
    timings = [timed(lambda number=number: work(number)) for number in range(repeat)]  # type: ignore[misc]
    return statistics.median(cpu for cpu, _ in timings), statistics.median(wall for _, wall in timings)


def completed(
    home: Home, folder: Path, runner: str, parameters: dict[str, object], parallel: int | None = None
) -> None:
    """Run a pipeline to its end."""
    options = RunOptions(runner=runner, parallel=parallel)
    result = run_pipeline(home, load_pipeline(folder), parameters, options)
    assert result.state == "COMPLETE", result


def chained(home: Home, folder: Path, runner: str, seed: int, parallel: int, number: int) -> None:
    """The chains with values that no round before had."""
    completed(home, folder, runner, {"seed": seed + number}, parallel)


def cold_shell(folder: Path) -> None:
    """The two nodes by the command line, in a root of its own."""
    root = Path(tempfile.mkdtemp(dir=folder.parent))
    command = [sys.executable, "-m", "drivetrain", "run", str(folder), "--root", str(root / ".drivetrain"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["state"] == "COMPLETE"


def for_kubeflow(function: PipelineFunction[..., object]) -> None:
    """The chains built and compiled to the two documents of KFP."""
    settings = ClusterSettings("image:1", "s3://bucket/x", KeyReference("store", "url"))
    compiled = compile_pipeline(function.build(), settings, project=function.project)
    assert len(compiled.nodes) == NODES
    assert compiled.yaml


def by_kfp(folder: Path) -> None:
    """The same chains by KFP's own SDK: the reference."""
    from kfp import compiler, components, dsl

    following = components.load_component_from_text(KFP_COMPONENT)

    def chains(seed: int) -> None:
        for chain in range(10):
            task = following(number=seed, value=0)
            for step in range(19):
                task = following(number=task.outputs["out"], value=chain * 100 + step)

    chains.__annotations__["seed"] = int  # KFP reads no annotation that is text
    del chains.__annotations__["return"]
    compiler.Compiler().compile(dsl.pipeline(name="chains")(chains), str(folder / "chains.yaml"))


def measure(folder: Path, repeat: int, items: int) -> dict[str, float]:
    """All figures."""
    chains, loop, hello = (
        project(folder, name, text) for name, text in (("chains", CHAINS), ("items", ITEMS), ("hello", HELLO))
    )
    function = load_pipeline(chains)
    home = Home(folder / "root" / ".drivetrain")
    figures = {}
    cpu, wall = median(lambda number: function.build(), repeat + 1)
    figures["build 200 nodes: s"] = wall
    for_kubeflow(function)
    cpu, wall = median(lambda number: for_kubeflow(function), repeat + 1)
    figures["200 nodes for Kubeflow: s"] = wall
    figures["200 nodes for Kubeflow: CPU s"] = cpu
    by_kfp(folder)  # which imports its SDK
    cpu, wall = median(lambda number: by_kfp(folder), repeat + 1)
    figures["200 tasks by KFP's SDK: s"] = wall
    figures["200 tasks by KFP's SDK: CPU s"] = cpu
    cpu, wall = median(lambda number: files(folder / "files"), repeat)
    figures["the disk alone: ms for two files of a node"] = wall / NODES * 1e3
    for runner, label in RUNNERS:
        # Inline one after another: threads would wait for each other's Python. By processes two at once.
        seed, parallel = (1000, 1) if runner == "inline" else (2000, 2)
        cpu, wall = median(partial(chained, home, chains, runner, seed, parallel), repeat)
        figures[f"{label}: ms a node"] = wall / NODES * 1e3
        if runner == "inline":
            figures["inline: CPU ms a node"] = cpu / NODES * 1e3
    cpu, wall = median(lambda number: completed(home, chains, "inline", {"seed": 1000}), repeat)
    figures["200 nodes, all cached: s"] = wall
    figures["200 nodes, all cached: CPU s"] = cpu
    many = list(range(items))
    for runner, _ in RUNNERS:
        other = Home(folder / f"items-{runner}" / ".drivetrain")
        cpu, wall = timed(lambda r=runner, h=other: completed(h, loop, r, {"many": many}, 2))  # type: ignore[misc]
        name = f"map of {items:,} items on 2 workers: s"
        figures[name if runner == "process" else f"map of {items:,} items inline, two at once: s"] = wall
        other.close()
    cpu, wall = median(lambda number: cold_shell(hello), repeat)
    figures["hello, two nodes, cold shell: s"] = wall
    home.close()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--items", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drivetrain-orchestration-") as folder:
        report("orchestration", measure(Path(folder), arguments.repeat, arguments.items), BARS)


if __name__ == "__main__":
    main()
