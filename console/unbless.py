"""`unbless`: take the blessing from a model, with who and why."""

from __future__ import annotations

import click

from .bless import decide
from .options import ConsoleSettings, shared


@click.command(
    epilog="\b\nExample:\n  drivetrain unbless --reason 'the labels of May were wrong'\n"
    "  drivetrain unbless 20261121-093000-1a2b Evaluator --by ada --reason 'a complaint'\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.argument("node", required=False)
@click.option("--reason", required=True, metavar="TEXT", help="Why; kept with the evaluation.")
@click.option("--by", default=None, metavar="NAME", help="Who decides; the user of this shell unless given.")
@shared
def unbless(settings: ConsoleSettings, run_id: str | None, node: str | None, reason: str, by: str | None) -> int:
    """Withdraw the blessing of the model that NODE of RUN (the newest unless given) blessed.

    From then on it counts as not blessed: `dt.latest_blessed()` chooses the one before. What was pushed stays pushed.
    """
    return decide(settings, run_id, node, blessed=False, reason=reason, by=by)
