"""`backfill`: a pipeline once for each of many spans, the oldest first."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Observer, Run, RunOptions, RunResult, load_pipeline, open_run, run_pipeline
from ..pipelines.launcher.observers import NullObserver
from ..pipelines.launcher.states import EndState
from .exit_codes import CANCELED, EXIT_CODES, OK
from .live import STYLES
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
from .run import exit_code, outcome_of, root_line
from .run_table import RunFacts, RunTable, facts
from .terminal import echo, terminal

if TYPE_CHECKING:
    from rich.console import Console


class _Notes(NullObserver):
    """Keeps what the tasks of a run say, each thing once."""

    def __init__(self) -> None:
        self.said: dict[tuple[str, str], None] = {}  # (task, text), in order

    def watching(self, run: Run) -> Observer:
        """The observer of a run: this."""
        return self

    def note(self, node: str, text: str) -> None:
        """Keep it."""
        self.said[node, text] = None


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain backfill examples/months --spans 1:12\n"
    "  drivetrain backfill examples/months --spans 3,5,7:9 --param epochs=1 --keep-going\n"
    "  drivetrain backfill examples/months --spans 1:12 --runner process --parallel 2\n"
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--spans",
    required=True,
    metavar="SPANS",
    help="Which: 1:12 (both ends count), 3,5 or both mixed; dates: 2013-01-01:2013-01-31.",
)
@click.option("--span-param", default="span", show_default=True, metavar="NAME", help="The parameter that takes it.")
@pipeline_option
@parameter_options
@click.option("--keep-going", is_flag=True, help="Go on with the next span where one did not complete.")
@run_options
@tag_options
@shared
def backfill(
    settings: ConsoleSettings,
    folder: Path,
    spans: str,
    span_param: str,
    which: str | None,
    params: tuple[str, ...],
    file: Path | None,
    keep_going: bool,
    options: RunOptions,
    labels: Labels,
) -> int:
    """Run the pipeline in FOLDER for each span, in order: what is unchanged comes from the cache.

    A window over earlier spans (`dt.resolvers.rolling`) sees no span after its own: an old one may be filled in. With
    --json the answer is {"spans": [{"span", "run", "state", "ran", "cached", "failed", "notes": [{"node", "text"}],
    "blessed", "metrics"}]}.
    """
    pipeline = load_pipeline(folder, which)
    if span_param not in pipeline.parameters:
        raise InputError(
            f"the pipeline {pipeline.name} has no parameter {span_param!r}, which would take the span",
            fix=f"give it `{span_param}: int | None = None`, or name another one by --span-param",
        )
    parameters = gather_parameters(pipeline.parameters, params, file)
    done: list[tuple[int, RunResult, _Notes]] = []
    worst = OK
    settings = settings.of(folder)
    with settings.home(readonly=False, create=True) as home:
        echo(root_line(settings, home), err=True)
        for span in parse_spans(spans):
            notes = _Notes()
            result = run_pipeline(
                home, pipeline, parameters | {span_param: span}, options, observer=notes.watching, **labels
            )
            done.append((span, result, notes))
            code = exit_code(result, outcome_of(home, result))
            worst = worst or code
            if not settings.json:  # each as it ends: a year takes a while
                _show(terminal(), span, result, notes)
            if code == CANCELED or (code and not keep_going):
                break
        table = RunTable(tuple(facts(home, open_run(home, result.run)) for _, result, _ in done))
        answer = [_facts(*each) | _measured(row) for each, row in zip(done, table.rows, strict=True)]
        settings.answer({"spans": answer}, table.show)
    return worst


def parse_spans(text: str) -> list[int]:
    """The spans that a text names, ascending. A date is the number of days since 1970-01-01, as in file patterns.

    Raises:
        InputError: It names none.
    """
    spans: set[int] = set()
    for part in text.split(","):
        ends = [end for each in part.split(":") if (end := _span(each)) is not None]
        between = range(ends[0], ends[-1] + 1) if ends else range(0)
        if not between or len(ends) > 2 or len(ends) <= part.count(":"):
            raise InputError(f"{part!r} names no spans", fix="write 1:12, 3, 3,5,7:9, or 2013-01-01:2013-01-31")
        spans |= set(between)
    return sorted(spans)


def _span(text: str) -> int | None:
    text = text.strip()
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        with suppress(ValueError):
            return (date.fromisoformat(text) - date(1970, 1, 1)).days
    return int(text) if re.fullmatch(r"\d+", text) else None


def _facts(span: int, result: RunResult, notes: _Notes) -> dict[str, object]:
    states = {name: node.state for name, node in result.nodes.items()}
    return {
        "span": span,
        "run": result.run,
        "state": result.state,
        "ran": [name for name, state in states.items() if state is EndState.COMPLETE],
        "cached": [name for name, state in states.items() if state is EndState.CACHED],
        "failed": {name: node.reason for name, node in result.nodes.items() if node.state is EndState.FAILED},
        "notes": [{"node": node, "text": text} for node, text in notes.said],
    }


def _measured(row: RunFacts) -> dict[str, object]:
    return {name: value for name, value in row.to_json().items() if name in ("blessed", "metrics")}


def _show(console: Console, span: int, result: RunResult, notes: _Notes) -> None:
    from rich.text import Text

    ran = [name for name, node in result.nodes.items() if node.state is EndState.COMPLETE]
    cached = sum(node.state is EndState.CACHED for node in result.nodes.values())
    did = f"ran {', '.join(ran)}" if ran else "ran nothing"
    line = Text.assemble(
        f"span {span}: ", (result.state, STYLES[result.state]), f"  {did}; {cached} cached; {result.run}"
    )
    console.print(line, soft_wrap=True)
    for task, text in notes.said:
        print_text(console, f"  {task}: {text}")
    for name, node in result.nodes.items():
        if node.state is EndState.FAILED:
            print_text(console, f"  {name}: {node.reason}")
