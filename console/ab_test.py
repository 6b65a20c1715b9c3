"""`ab-test`: the versions of a served model compared, once labels are known."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from .exit_codes import OK
from .options import ConsoleSettings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..components.evaluation.ab_test import ABTest

_TASKS = ("binary", "regression", "multiclass")


@click.command(
    epilog="\b\nExample:\n  drivetrain ab-test request-log/flights labels.csv --label late\n"
    "  drivetrain ab-test request-log/flights labels.parquet --label late --key flight_id --metric auc --json\n"
    "  drivetrain ab-test request-log/flights labels.csv --label late --since 2026-11-20 --share 4=10\n"
    "  drivetrain ab-test request-log/wine labels.csv --label cultivar --class barolo --class barbera\n"
)
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@click.argument("labels", type=click.Path(exists=True, path_type=Path))
@click.option("--label", required=True, metavar="COLUMN", help="Of the labels.")
@click.option(
    "--key", default="request_id", show_default=True, metavar="COLUMN", help="What rows of both are known by."
)
@click.option("--prediction", default=None, metavar="OUTPUT", help="What is judged; the only output unless given.")
@click.option("--baseline", type=int, default=None, metavar="VERSION", help="The smallest number unless given.")
@click.option("--versions", default=None, metavar="3,4", help="That are compared; all that have labels unless given.")
@click.option("--signature", default=None, metavar="NAME", help="What was asked; predict, or the only one.")
@click.option("--since", default=None, metavar="TIME", help="Of requests: 2026-11-27, or 2026-11-27T12:00 (UTC).")
@click.option("--until", default=None, metavar="TIME", help="Only requests before it.")
@click.option(
    "--share", "shares", multiple=True, metavar="VERSION=PERCENT",
    help="Of the requests that it was to answer; what is left is another version's. May be given several times.",
)  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="May be given several times.")
@click.option("--task", type=click.Choice(_TASKS), default=None, help="What the labels look like, unless given.")
@click.option(
    "--class", "classes", multiple=True, metavar="TEXT",
    help="A class, where labels are texts; once for each score, in their order.",
)  # fmt: skip
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
    help="Of the intervals.",
)  # fmt: skip
@shared
def ab_test(
    settings: ConsoleSettings,
    log: Path,
    labels: Path,
    label: str,
    key: str,
    prediction: str | None,
    baseline: int | None,
    versions: str | None,
    signature: str | None,
    since: str | None,
    until: str | None,
    shares: tuple[str, ...],
    metrics: tuple[str, ...],
    task: str | None,
    classes: tuple[str, ...],
    level: float,
) -> int:
    """Compare the versions of a served model by the request log in LOG and what came true, in LABELS.

    LOG is a model's folder in what `drivetrain serve --request-log` writes, LABELS a file of what ExampleGen reads. Of
    each version it prints rows, the share of them whose label is known, and metrics; of each but the baseline the
    differences, with interval and p-value. With --share it warns where versions did not get as many requests as they
    were to.
    """
    from ..components.evaluation.ab_test import ab_test as compare

    result = compare(
        log, str(labels), label=label, key=key, prediction=prediction, baseline=baseline,
        versions=None if versions is None else _numbers(versions), signature=signature,
        since=since, until=until, shares=_shares(shares) if shares else None,
        metrics=list(metrics) or None, task=task, classes=classes or None, level=level,  # type: ignore[arg-type]  # one of the choices
    )  # fmt: skip
    settings.answer(result.to_dict(), lambda console: _show(console, result))
    return OK


def _numbers(text: str) -> list[int]:
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        raise InputError(f"--versions {text!r:.80} are no versions", fix="--versions 3,4")
    return [int(number) for number in text.split(",")]


def _shares(options: tuple[str, ...]) -> dict[int, float]:
    shares: dict[int, float] = {}
    for option in options:
        share = re.fullmatch(r"(\d{1,18})=(\d+(?:\.\d+)?)%?", option)
        if share is None or int(share[1]) in shares:
            raise InputError(f"--share {option!r:.80} is not a share", fix="write each version once: --share 4=10")
        shares[int(share[1])] = float(share[2])
    return shares


def _show(console: Console, result: ABTest) -> None:
    from rich.table import Table

    from ..components.evaluation.ab_test import left_out

    table = Table(box=None, title=f"{result.model}: against version {result.baseline}", title_justify="left")
    for column in ("version", "rows", "labelled", "metric", "value", "interval", "difference", "interval", "p"):
        table.add_column(column, justify="left" if column == "metric" else "right", no_wrap=True)
    differences = {(each.version, each.metric): each for each in result.differences}
    for outcome in result.versions:
        first = [str(outcome.version), f"{outcome.rows:,}", f"{outcome.labelled_share:.1%}"]
        for metric, value in outcome.metrics.items():
            apart = differences.get((outcome.version, metric))
            ends = outcome.intervals.get(metric)
            table.add_row(
                *first,
                metric,
                "" if value is None else f"{value:.4g}",
                "" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}",
                "" if apart is None else f"{apart.difference:+.4g}",
                "" if apart is None else f"{apart.lower:+.4g} to {apart.upper:+.4g}",
                "" if apart is None or apart.p_value is None else f"{apart.p_value:.2g}",
            )
            first = ["", "", ""]
    console.print(table)
    ratio = result.sample_ratio
    if ratio is not None and ratio.is_mismatch:
        console.print(f"warning: {ratio}. Something else than the shares decides who is asked: do not trust the rest.")
    elif ratio is not None:
        console.print(str(ratio))
    for version, rows in result.without_labels.items():
        console.print(left_out(version, rows))
    if result.repeated:
        console.print(f"{result.repeated:,} rows were left out, since their key had come before")
    if result.without_prediction:
        console.print(f"{result.without_prediction:,} rows were left out, since their clients asked for other outputs")
