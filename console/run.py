"""`run`: carry a pipeline out, show it while it runs and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..pipelines import (
    Home,
    NodeResult,
    Observer,
    Run,
    RunOptions,
    RunResult,
    Selection,
    load_pipeline,
    open_run,
    run_pipeline,
)
from ..pipelines.launcher.observers import NullObserver
from ..pipelines.launcher.states import EndState, RunState
from .exit_codes import CRASH, EXIT_CODES, NOT_BLESSED, USER_ERROR
from .live import cause_of, watch
from .model_outcome import ModelOutcome, model_outcome
from .options import (
    ConsoleSettings,
    Labels,
    gather_parameters,
    parameter_options,
    pipeline_option,
    print_text,
    run_options,
    shared,
    tag_options,
)
from .outline import outline
from .session import view_task
from .show import blamed, nodes_table, refusal_of, show_nodes, show_summaries
from .terminal import echo, terminal

if TYPE_CHECKING:
    from rich.console import Console


ObserverFactory = Callable[[Run], Observer]


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n"
    "  drivetrain run examples/flights\n"
    "  drivetrain run examples/flights --param epochs=5 --no-cache\n"
    "  drivetrain run examples/flights --from Trainer --tag wide --note 'two more columns'\n"
    "  drivetrain run examples/flights --require-blessed --runner process --parallel 4\n"
    "  drivetrain run examples/flights --runner beam --beam-option=--direct_num_workers=2\n"
)
@click.argument("folder", type=click.Path(path_type=Path))
@pipeline_option
@parameter_options
@run_options
@click.option("--from", "first", multiple=True, metavar="NODE", help="Run this node and what follows it only.")
@click.option("--to", "last", multiple=True, metavar="NODE", help="Run this node and what it needs only.")
@click.option("--only", multiple=True, metavar="NODE", help="Run this node only.")
@click.option("--skip", multiple=True, metavar="NODE", help="Take this node's outputs from an earlier run.")
@click.option("--base", default="", metavar="RUN", help="The earlier run that gives what is not run; else the newest.")
@tag_options
@shared
def run(
    settings: ConsoleSettings,
    folder: Path,
    which: str | None,
    params: tuple[str, ...],
    file: Path | None,
    options: RunOptions,
    first: tuple[str, ...],
    last: tuple[str, ...],
    only: tuple[str, ...],
    skip: tuple[str, ...],
    base: str,
    labels: Labels,
) -> int:
    """Run the pipeline in FOLDER/pipeline.py.

    What ran before with the same code, parameters and inputs is not run again. With --json the last line on standard
    output is {"run", "state", "blessed", "closing", "nodes": {node: {"state", "seconds", "reason", "outputs"}}}:
    "blessed" says whether every model that was judged is (null where none was), as --require-blessed asks, "closing"
    the run's last lines.
    """
    pipeline = load_pipeline(folder, which)
    parameters = gather_parameters(pipeline.parameters, params, file)
    selection = Selection(first, last, only, skip, base)
    if base and not selection:
        raise click.UsageError("--base is for a partial run: give --from, --to, --only or --skip too")
    return carry_out(
        settings.of(folder),
        lambda home, watched: run_pipeline(home, pipeline, parameters, options, watched, selection, **labels),
        new=True,
    )


def outcome_of(home: Home, result: RunResult) -> ModelOutcome:
    """What a run that was carried out says of its models."""
    outputs = {name: [record for key in node.outputs.values() for record in key] for name, node in result.nodes.items()}
    return model_outcome(open_run(home, result.run), result.state, outputs)


def exit_code(result: RunResult, outcome: ModelOutcome) -> int:
    """The exit code of a run. FAILED is the user's (2) where the user can mend every failure, else ours (1)."""
    if outcome.falls_short:
        return NOT_BLESSED
    failed = [node for node in result.nodes.values() if node.state is EndState.FAILED]
    if failed and all(node.user_error for node in failed):
        return USER_ERROR
    return result.state.exit_code


def carry_out(settings: ConsoleSettings, go: Callable[[Home, ObserverFactory], RunResult], *, new: bool) -> int:
    """Carry a run out, show it while it runs, print how it ended; gives the exit code.

    `go` gets the home and what makes an observer of the run; `new` says whether a root may be made.
    """
    with settings.home(readonly=False, create=new) as home:
        console, line = None if settings.json else terminal(), root_line(settings, home)
        with watch(console) as watched:

            def begun(run: Run) -> Observer:
                echo(line, err=True)
                return watched(run) if watched else NullObserver()

            result = go(home, begun)
        outcome = outcome_of(home, result)
        code = exit_code(result, outcome)
        settings.answer(result.to_json() | outcome.to_json(), lambda console: _show(console, home, result))
        for first, *others in _failures(result):
            if not first.refused_by:
                # Errors of commands and notebooks begin with their node themselves.
                echo(f"error: {first.node}: {first.reason.removeprefix(f'{first.node}: ')}", err=True)
                if others:
                    echo(f"  likewise: {', '.join(each.node for each in others)}", err=True)
            else:
                echo(f"error: {first.refused_by}: {refusal_of(first)}", err=True)
                echo(f"  so this ended early: {', '.join(each.node for each in (first, *others))}", err=True)
        if not settings.json:
            for line in (*outcome.lines(), *_advice(result, settings, code, new=new)):
                print_text(terminal(), line)
        return code


def _failures(result: RunResult) -> list[list[NodeResult]]:
    """The tasks that failed, those together that one cause has struck."""
    failures: dict[str, list[NodeResult]] = {}
    for node in result.nodes.values():
        if node.state is EndState.FAILED:
            failures.setdefault(cause_of(node), []).append(node)
    return list(failures.values())


def root_line(settings: ConsoleSettings, home: Home) -> str:
    """Where the runs lie, and how many there are: a new root has no history to compare with."""
    location, count = settings.location, home.store.count_contexts("run")
    because = f" (by {location.named_by})" if location.named_by else ""
    runs = "new, with no runs yet" if count == 0 else f"{count:,} run{'s' if count > 1 else ''} so far"
    return f"root {location.root}{because}: {runs}"


def _show(console: Console, home: Home, result: RunResult) -> None:
    """The table, then what was made says of itself."""
    run = open_run(home, result.run)
    table = nodes_table(outline(run.pipeline), blamed(result.nodes))
    show_nodes(console, f"{run.pipeline.name}, run {run.id}:", result.state, table, run.seconds)
    views = {name: view_task(home, run, name) for name, node in result.nodes.items() if node.outputs}
    show_summaries(console, home, views)


def _advice(result: RunResult, settings: ConsoleSettings, code: int, *, new: bool) -> list[str]:
    options = settings.as_options
    if result.state is RunState.STOPPED:
        resumed = "A resumed run keeps the data that it read: what was mended since, only `drivetrain run` reads."
        return [
            *([] if new else [resumed]),
            "What waits for this check did not run. Mend the data and run again; or, where the data is right, change "
            "what it is held to and run again: a component's thresholds, or schema.yaml in the project. "
            f"`drivetrain schema update{options}` proposes its changes. For other data than it was written for, "
            f"`drivetrain schema infer{options}` proposes it again, and `drivetrain schema accept --replace{options}` "
            "writes that.",
        ]
    if result.state is RunState.FAILED:
        traceback = f"The traceback: `drivetrain show {result.run}{options}`. " if code == CRASH else ""
        return [
            f"{traceback}Mend it, then run again: what ended well is reused. With the code as it was: "
            f"`drivetrain resume {result.run}{options}`."
        ]
    if result.state is RunState.CANCELED:
        return [f"To go on: `drivetrain resume {result.run}{options}`."]
    return []
