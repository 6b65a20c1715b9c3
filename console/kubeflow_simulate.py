"""`kubeflow simulate` and `kubeflow sync`: compiled pipelines carried out here; what pods recorded on their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..pipelines import Home, RunOptions, RunResult, load_pipeline
from .parameters import gathered
from .run import Watched, carry_out
from .settings import EXIT_CODES, OK, USER_ERROR, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines.kubeflow.records import Synced


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n"
    "  drivetrain kubeflow simulate examples/flights --parallel 2\n"
    "  drivetrain kubeflow simulate flights.yaml --project examples/flights --param epochs=5\n"
    "  drivetrain kubeflow simulate examples/flights --evict Trainer\n"
)
@click.argument("source", metavar="PROJECT|FILE", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--project",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The project that the image holds, where FILE is a compiled one.",
)
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the pipeline.")
@click.option(
    "--params",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Set parameters by a file: JSON, YAML or TOML. A variable DRIVETRAIN_PARAM_NAME sets one too.",
)
@click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="How many pods run at once at most.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@click.option("--evict", multiple=True, metavar="NODE", help="Evict this node's first pod, a second after it started.")
@click.option("--fail-fast", is_flag=True, help="Start nothing more of a DAG once a task of it failed, as Argo may.")
@shared
def simulate(
    settings: Settings,
    source: Path,
    project: Path | None,
    params: tuple[str, ...],
    file: Path | None,
    parallel: int | None,
    no_cache: bool,
    evict: tuple[str, ...],
    fail_fast: bool,
) -> int:
    """Carry a compiled pipeline out on this machine as Kubeflow would.

    The very documents are executed: who waits for whom, conditions in CEL, loops, exits, retries. Every task is a
    process of its own, which runs the container's command. With --json the last line is that of `drivetrain run`, with
    "kubeflow": {"run", "state", "pods", "decided"} in it.
    """
    from ..pipelines.kubeflow.ownership import Submission, hand_over
    from ..pipelines.kubeflow.simulate import Cluster, Eviction, outcome, read
    from ..pipelines.kubeflow.simulate import simulate as carry_out_here
    from ..pipelines.kubeflow.submit import arguments_of
    from ..pipelines.launching.home import new_run
    from .kubeflow import compiled

    if source.is_dir():
        if project is not None:
            raise click.UsageError("--project is for a compiled FILE")
        made = compiled(source)
        document = read((made.spec, made.platform))
    elif project is None:
        raise click.UsageError("a compiled FILE needs --project, which stands for what the image holds")
    else:
        document = read(source)
    pipeline = load_pipeline(project or source)
    values = pipeline.values(gathered(pipeline.parameters, params, file))
    cluster = Cluster(parallel, fail_fast, evictions=tuple(Eviction(name) for name in evict))

    def go(home: Home, watched: Watched) -> RunResult:
        options = RunOptions(runner="kubeflow", cache=not no_cache, parallel=parallel)
        run = hand_over(home, new_run(home, pipeline.build(), pipeline.project, values, options), Submission())
        given = arguments_of(run.pipeline, run.parameters)
        observer = watched(run) if watched else None
        return outcome(home, run.id, carry_out_here(home, document, pipeline.project, given, run, cluster, observer))

    return carry_out(settings, go, new=True)


@click.command(
    epilog="\b\nExample:\n  drivetrain kubeflow sync kubeflow-068e50e0-6780-41dd-b5a1-2e041edba292 "
    "--store postgresql://store/drivetrain\n"
)
@click.argument("run", metavar="RUN")
@shared
def sync(settings: Settings, run: str) -> int:
    """Take into the store what the pods of RUN recorded beside the payloads and could not tell it.

    Twice changes nothing. Exit code 2 where a record cannot be read: it is named, the others are taken in.
    """
    from ..pipelines.kubeflow.records import sync as take_in

    with settings.home(readonly=False) as home:
        found = take_in(home, run)
    settings.answer(found.to_json(), lambda console: _show(console, found))
    return USER_ERROR if found.ignored else OK


def _show(console: Console, found: Synced) -> None:
    new = f": {', '.join(found.brought)}" if found.brought else ""
    lines = [f"run {found.run}: {len(found.brought)} executions are new to the store{new}; it knew {found.known}"]
    lines += [f"ignored {name}: {why}" for name, why in found.ignored]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


VERBS: Final = (simulate, sync)
