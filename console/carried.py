"""How a run is to be carried out, as the shell says it: who walks the DAG, who reads the data, how much at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ..pipelines import RunOptions


def carried(verb: Callable[..., int | None]) -> Callable[..., int | None]:
    """Give a verb `--runner`, `--executor`, `--beam-option`, `--parallel` and `--no-cache`, as its `options`."""

    @click.option(
        "--runner",
        type=click.Choice(["inline", "process", "beam"]),
        default="inline",
        show_default=True,
        help="Who walks the DAG.",
    )
    @click.option(
        "--executor",
        type=click.Choice(["local", "beam"]),
        default="local",
        show_default=True,
        help="Who reads the data inside a component.",
    )
    @click.option(
        "--beam-option",
        "beam_options",
        multiple=True,
        metavar="--FLAG=VALUE",
        help="A flag of Beam's pipeline options, for the runner and the executor that are beam.",
    )
    @click.option("--parallel", type=click.IntRange(min=1), metavar="N", help="How many nodes run at once at most.")
    @click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
    @functools.wraps(verb)
    def wrapped(
        *args: Any,
        runner: str,
        executor: str,
        beam_options: tuple[str, ...],
        parallel: int | None,
        no_cache: bool,
        **kwargs: Any,
    ) -> int | None:
        if beam_options and "beam" not in (runner, executor):
            raise click.UsageError("--beam-option is for --runner beam or --executor beam")
        flags = tuple(option if option.startswith("-") else f"--{option}" for option in beam_options)
        options = RunOptions(
            runner=runner,
            runner_options=flags if runner == "beam" else (),
            executor=executor,
            executor_options=flags if executor == "beam" else (),
            cache=not no_cache,
            parallel=parallel,
        )
        return verb(*args, options=options, **kwargs)

    return wrapped
