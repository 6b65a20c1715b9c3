"""`find`: runs, executions or artifacts that a filter fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ..metadata.records import TRIAL
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .record_table import KINDS, page_of

if TYPE_CHECKING:
    from rich.console import Console

_NESTED: Final = {"metric": "metrics", "property": "properties", "parameter": "parameters", "tag": "tags"}
"""Where a record has the fields of dotted names."""
_SHOWN: Final[dict[str, tuple[str, ...]]] = {
    "runs": ("run", "pipeline", "state", "started"),
    "executions": ("component", "node", "run", "state", "started", "seconds"),
    "artifacts": ("type", "state", "created", "size", "uri"),
}


@click.command(
    epilog="\b\nExample:\n  drivetrain find runs \"state = 'FAILED' and started >= -7d\"\n"
    '  drivetrain find runs "metric.auc >= 0.9 and parameter.epochs <= 5"\n'
    "  drivetrain find artifacts \"type = 'Model' and made_from = 'artifacts/ExampleGen/0f3c…/examples'\"\n"
    '  drivetrain find executions "metric.loss >= 1" --order -started --limit 5 --json\n'
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("where", metavar="[FILTER]", default="")
@click.option(
    "--order", default="-id", show_default=True, metavar="FIELD", help="Sort by FIELD, ascending; -FIELD: descending."
)
@click.option("--limit", "-n", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most.")
@click.option("--index", metavar="FIELD", help="First create a permanent index of this property or metric.")
@click.option("--after", metavar="TOKEN", help="Continue after a page, by the token that it ends with.")
@shared
def find(
    settings: ConsoleSettings, kind: str, where: str, order: str, limit: int, index: str | None, after: str | None
) -> int:
    """Find runs, executions or artifacts by a filter: on states, times, metrics, parameters, properties, lineage.

    Write text and times in single quotes; -7d is seven days before now. `and`, `or`, `not`, parentheses, `in (…)`,
    `like '%…'` and `is null` are understood; docs/finding.md lists the fields. Properties, metrics and parameters that
    are named become columns; --json has all. As a DataFrame: `dt.find()`.
    """
    from ..metadata.filters import dotted_names
    from ..metadata.finding import RecordQuery

    with settings.home(readonly=index is None) as home:
        if index is not None:
            if kind == "runs":
                raise click.UsageError("--index is for artifacts and executions")
            home.store.index_property("artifact" if kind == "artifacts" else "execution", index)
        records, following = page_of(home, kind, RecordQuery(where, order, limit, after))
        answer = {kind: records, "next": following}
        columns = {name: [name] for name in _SHOWN[kind]} | dotted_names(order.removeprefix("-")) | dotted_names(where)
        settings.answer(answer, lambda console: _show(console, kind, columns, records, following))
    return OK


def _show(
    console: Console,
    kind: str,
    columns: Mapping[str, Sequence[str]],
    records: list[dict[str, Any]],
    following: str | None,
) -> None:
    """Print the columns of which a record has a value, in a table."""
    from rich.markup import escape
    from rich.table import Table

    if not records:
        print_text(console, f"no {kind} fit")
        return
    table, cells = Table(box=None, pad_edge=False), []
    for name, parts in columns.items():
        values = [_value(record, parts) for record in records]
        if name in _SHOWN[kind] or any(value is not None for value in values):
            numeric = all(isinstance(value, int | float) for value in values if value is not None)
            table.add_column(escape(name), overflow="fold", justify="right" if numeric else "left")
            cells.append([escape(_cell(name, value)) for value in values])
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    console.print(table)
    if following is not None:
        print_text(console, f"there are more: --after {following}")


def _value(record: Mapping[str, Any], parts: Sequence[str]) -> Any:
    """What a record has of a field, by the parts of its name; None where it has nothing of that name."""
    head, *path = parts
    value = record.get(_NESTED.get(head, head))
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    if parts == ["component"] and value == TRIAL:
        return f"{TRIAL} {record['properties'].get('number', '')}"
    return value


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column in ("started", "created"):
        return str(value)[:16].replace("T", " ")
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
