"""`kubeflow simulate`: execute a compiled pipeline on this machine as a cluster would."""

from __future__ import annotations

from pathlib import Path

import click

from ...errors import InputError
from ...pipelines import Home, RunOptions, RunResult, load_pipeline
from ..exit_codes import EXIT_CODES
from ..options import (
    ConsoleSettings,
    Labels,
    gather_parameters,
    parameter_options,
    pipeline_option,
    shared,
    tag_options,
)
from ..run import ObserverFactory, carry_out
from .compile import compiled


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
@pipeline_option
@parameter_options
@click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="How many pods run at once at most.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@click.option("--evict", multiple=True, metavar="NODE", help="Evict this node's first pod, a second after it started.")
@click.option(
    "--effects", is_flag=True, help="Push to the real destinations; else to a folder of the root, work/simulated."
)
@click.option("--fail-fast", is_flag=True, help="Start nothing more of a DAG once a task of it failed, as Argo may.")
@tag_options
@shared
def simulate(
    settings: ConsoleSettings,
    source: Path,
    project: Path | None,
    which: str | None,
    params: tuple[str, ...],
    file: Path | None,
    parallel: int | None,
    no_cache: bool,
    evict: tuple[str, ...],
    effects: bool,
    fail_fast: bool,
    labels: Labels,
) -> int:
    """Carry a compiled pipeline out on this machine as Kubeflow would.

    The very documents are executed: who waits for whom, conditions in CEL, loops, exits, retries. Every task is a
    process of its own, which runs the container's command. What Pusher pushes goes to a folder of the root, unless
    --effects is given; what components of your own do outside of it, they do.

    With --json the last line is that of `drivetrain run`, with "kubeflow": {"run", "state", "pods", "decided"} in it.
    """
    from ...pipelines.ir.tasks import parse_task
    from ...pipelines.kubeflow.findings import refuse
    from ...pipelines.kubeflow.lint import lint
    from ...pipelines.kubeflow.ownership import SIMULATED
    from ...pipelines.kubeflow.simulate import Eviction, SimulatedCluster, read, result_of
    from ...pipelines.kubeflow.simulate import simulate as carry_out_here
    from ...pipelines.kubeflow.submit import arguments_of
    from ...pipelines.launcher.runs import new_run

    if source.is_dir():
        if project is not None:
            raise click.UsageError("--project is for a compiled FILE")
        compiled_pipeline = compiled(source, which)
        document = read((compiled_pipeline.spec, compiled_pipeline.platform))
    elif project is None:
        raise click.UsageError("a compiled FILE needs --project, which stands for what the image holds")
    else:
        document = read(source)
        refuse(lint(source.read_text(encoding="utf-8")))
    pipeline = load_pipeline(project or source, which)
    values, built = pipeline.values(gather_parameters(pipeline.parameters, params, file)), pipeline.build()
    for name in evict:
        node, index = parse_task(name)
        if len(index) != len(built.scope(built[node].id)):
            raise InputError(
                f"{name} is not a pod of {built.name}", fix="name a node; Trainer[3] for an item of a loop"
            )

    def go(home: Home, watched: ObserverFactory) -> RunResult:
        instead = {} if effects else {"*": {"DRIVETRAIN_EFFECTS": str(home.root / "work" / "simulated")}}
        evictions = tuple(Eviction(name) for name in evict)
        cluster = SimulatedCluster(parallel, fail_fast, evictions=evictions, environment=instead)
        options = RunOptions("kubeflow", (SIMULATED,), cache=not no_cache, parallel=parallel)
        run = new_run(home, built, pipeline.project, values, options, **labels)
        arguments = arguments_of(run.pipeline, run.parameters)
        observer = watched(run)
        return result_of(
            home, run.id, carry_out_here(home, document, pipeline.project, arguments, run, cluster, observer)
        )

    return carry_out(settings.of(project or source), go, new=True)
