"""`cost`: what executions used and cost, summed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import InputError, missing_extra
from ..pipelines import Home
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .run_table import opened_root

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from ..metadata import ExecutionRecord
    from ..pipelines.launcher.budgets import BudgetState
    from ..pipelines.launcher.costs import CostSettings, CostSum

GROUPS: Final = ("run", "pipeline", "node", "month", "component")
"""What sums are of."""
_NUMBERS: Final = (
    ("CPU hours", "cpu_hours"),
    ("GPU hours", "gpu_hours"),
    ("peak GB", "peak_memory"),
    ("GB read", "gb_read"),
    ("GB written", "gb_written"),
    ("kWh", "kwh"),
    ("g CO2", "co2_grams"),
)


@click.command(
    epilog="\b\nExample:\n  drivetrain cost\n  drivetrain cost --by month --where \"pipeline = 'flights'\"\n"
    '  drivetrain cost --by node --where "started >= -7d" --prices prices.yaml --json\n'
)
@click.option("--by", type=click.Choice(GROUPS), default="run", show_default=True, help="What is summed together.")
@click.option("--where", default="", metavar="FILTER", help="Only of the executions that it fits: see docs/finding.md.")
@click.option(
    "--prices",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file of prices; else costs.yaml beside the root's project, where there is one.",
)
@shared
def cost(settings: ConsoleSettings, by: str, where: str, file: Path | None) -> int:
    """Sum what executions used and cost: CPU, accelerators, memory, bytes, energy, money.

    Energy with ~ is an estimate, at least in part. What the cache saved is what the reused work had used. Budgets of
    costs.yaml are listed below, with what was used of them. As a DataFrame: `dt.costs()`.
    """
    from ..pipelines.launcher.budgets import budget_states

    with settings.home() as home:
        costs_of = _settings(home, file)
        sums = cost_sums(home, by, where, costs_of)
        budgets = budget_states(home, costs_of)
        answer = {
            "currency": costs_of.prices.currency or None,
            "by": by,
            "rows": [{by: label, **each.to_json()} for label, each in sums.items()],
            "budgets": [each.to_json() for each in budgets],
        }
        settings.answer(answer, lambda console: _show(console, by, answer, budgets))
    return OK


def costs(
    by: str = "run",
    where: str = "",
    root: str | Path | None = None,
    store: str | None = None,
    *,
    prices: str | Path | None = None,
) -> pd.DataFrame:
    """What executions used and cost, as a DataFrame: what `drivetrain cost` shows, a row for each sum.

    Columns are `by`, numbers of executions, `cpu_hours`, `gpu_hours`, `peak_memory` (bytes), `gb_read`, `gb_written`
    (10^9 bytes), `kwh`, `estimated` (whether energy is an estimate, at least in part), `money`, and `saved.…`,
    which the cache saved.

    Args:
        by: "run", "pipeline", "node", "month" or "component".
        where: Only of the executions that this filter fits; all where empty. See docs/finding.md.
        root: Where the runs lie; where None, the root that `drivetrain cost` looks at in the working directory.
        store: Where the metadata lies, if not in the root.
        prices: The file of prices; where None, costs.yaml beside the root's project, where there is one.

    Raises:
        InputError: There is no such root, or the filter or the file of prices is wrong.
        DrivetrainError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise missing_extra("pandas", "pandas") from None
    if by not in GROUPS:
        raise InputError(f"{by!r:.40} is nothing to sum by", fix=f"name {', '.join(GROUPS[:-1])} or {GROUPS[-1]}")
    with opened_root(root, store) as home:
        sums = cost_sums(home, by, where, _settings(home, Path(prices) if prices is not None else None))
        return pd.json_normalize([{by: label, **each.to_json()} for label, each in sums.items()])


def cost_sums(home: Home, by: str, where: str, settings: CostSettings) -> dict[str, CostSum]:
    """Sums by what they are of, in the order in which the first execution of each began; months are of UTC."""
    from ..pipelines.launcher.costs import CostSum, all_executions

    pipelines: dict[str, str] = {}
    reused: dict[int, ExecutionRecord] = {}
    sums: dict[str, CostSum] = {}
    labels: dict[str, Callable[[ExecutionRecord], str]] = {
        "run": lambda execution: str(execution.properties.get("run", "")),
        "pipeline": lambda execution: _pipeline(home, execution, pipelines),
        "node": lambda execution: f"{_pipeline(home, execution, pipelines)}.{_node(execution)}",
        "month": lambda execution: f"{execution.finished_at or execution.created_at:%Y-%m}",
        "component": lambda execution: execution.component,
    }
    for execution in all_executions(home, where):
        source = None
        if (number := execution.cached_from) is not None:
            source = reused[number] = reused.get(number) or home.store.execution(number)
        sums.setdefault(labels[by](execution), CostSum(settings.prices)).add(execution, source)
    return sums


def _settings(home: Home, file: Path | None) -> CostSettings:
    """The prices and budgets of the file, or of that beside the project; none where there is none."""
    from ..pipelines.launcher.costs import COSTS, CostSettings, read_costs

    default = home.base / COSTS
    if file is None and not default.is_file():
        return CostSettings()
    return read_costs(file or default)


def _pipeline(home: Home, execution: ExecutionRecord, known: dict[str, str]) -> str:
    run = str(execution.properties.get("run", ""))
    if run not in known:
        context = home.store.find_context("run", run)
        known[run] = str(context.properties.get("pipeline", "")) if context else ""
    return known[run]


def _node(execution: ExecutionRecord) -> str:
    from ..pipelines.ir.tasks import parse_task
    from .lineage import node_of

    return parse_task(node_of(execution))[0]


def _show(console: Console, by: str, answer: dict[str, Any], budgets: list[BudgetState]) -> None:
    from rich.table import Table
    from rich.text import Text

    rows = answer["rows"]
    if not rows:
        print_text(console, "no executions fit")
    columns = [(heading, name) for heading, name in _NUMBERS if any(row.get(name) for row in rows)]
    saves = any(row["cached"] for row in rows)
    table = Table(box=None, pad_edge=False)
    table.add_column(by, overflow="fold")
    headings = ["executions", *(heading for heading, _ in columns), *([answer["currency"]] if _priced(rows) else [])]
    for heading in [*headings, *(["saved"] if saves else [])]:
        table.add_column(Text(heading), justify="right")
    for row in rows:
        cells = [f"{row['executions']:,}", *(_cell(row, name) for _, name in columns)]
        cells += [f"{row['money']:,.2f}"] if _priced(rows) else []
        cells += [_saved(row["saved"], answer["currency"])] if saves else []
        table.add_row(Text(row[by]), *cells)
    if rows:
        console.print(table)
    if any(row["estimated"] for row in rows):
        print_text(console, "~ is an estimate, at least in part")
    if unmeasured := sum(row["unmeasured"] for row in rows):
        print_text(console, f"not measured: {unmeasured:,} executions, killed or of an earlier release")
    for state in budgets:
        print_text(console, str(state))


def _priced(rows: list[dict[str, Any]]) -> bool:
    return any(row["money"] is not None for row in rows)


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name] / 1e9 if name == "peak_memory" else row[name]
    estimate = "~" if row["estimated"] and name in ("kwh", "co2_grams") and value else ""
    return f"{estimate}{_number(value)}"


def _saved(saved: dict[str, Any], currency: str | None) -> str:
    return f"{saved['money']:,.2f} {currency}" if saved["money"] is not None else f"{_number(saved['cpu_hours'])} CPU h"


def _number(value: float) -> str:
    """Three digits, without exponents."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or not value else f"{value:.6f}"
