"""`pin`: keep artifacts whatever a retention policy says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..metadata import ArtifactRecord
from ..pipelines import Home, open_run
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared, who

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain pin artifacts/Trainer/0f3c…/model --reason 'for the audit of 2026'\n"
    "  drivetrain pin --run 20261121-093000-1a2b\n  drivetrain pin\n"
    "  drivetrain pin --remove artifacts/Trainer/0f3c…/model\n"
)
@click.argument("artifact", required=False)
@click.option("--run", "run_id", metavar="RUN", help="All outputs of a run.")
@click.option("--remove", is_flag=True, help="Pin no more: the policy decides again.")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with the pin.")
@click.option("--by", default=None, metavar="NAME", help="Who pins; the user of this shell unless given.")
@shared
def pin(
    settings: ConsoleSettings, artifact: str | None, run_id: str | None, remove: bool, reason: str, by: str | None
) -> int:
    """Keep an ARTIFACT, or all outputs of a run, whatever a retention policy says; without either, list the pins.

    What led to it is kept with it. ARTIFACT is a URI, a uid, or the beginning of a fingerprint.
    """
    from ..metadata.records import PINNED
    from ..metadata.retention import pin as keep
    from ..metadata.retention import unpin

    if artifact is not None and run_id is not None:
        raise click.UsageError("give an ARTIFACT or --run, not both")
    if artifact is None and run_id is None and (remove or reason):
        raise click.UsageError("name an ARTIFACT, or a run with --run")
    with settings.home(readonly=artifact is None and run_id is None) as home:
        if artifact is None and run_id is None:
            pinned = [each for each in home.store.artifacts() if each.properties.get(PINNED)]
            pins = [{"uri": each.uri, "type": each.type, **each.properties[PINNED]} for each in pinned]
            settings.answer({"pinned": pins}, lambda console: _list(console, pins))
            return OK
        chosen = _chosen(home, artifact, run_id)
        for each in chosen:
            unpin(home.store, each) if remove else keep(home.store, each, who(by), reason)
        what = "pinned no more" if remove else "pinned"
        answer = {"pinned": not remove, "uris": [each.uri for each in chosen]}
        settings.answer(
            answer, lambda console: print_text(console, "\n".join(f"{what}: {each.uri}" for each in chosen))
        )
    return OK


def _chosen(home: Home, artifact: str | None, run_id: str | None) -> list[ArtifactRecord]:
    """The artifact that is named, or all outputs of a run; those whose payloads are there."""
    from .lineage import find_artifact

    if artifact is None:
        run = open_run(home, run_id)
        several = home.store.artifacts(state=None, context=run.context)
        named = f"run {run.id}"
    else:
        single = find_artifact(home, artifact)
        if single is None:
            raise InputError(
                f"{artifact!r} is not an artifact in {home.root}", fix="name a URI that `drivetrain show` prints"
            )
        several, named = [single], single.uri
    there = [each for each in several if each.state in ("LIVE", "MARKED_FOR_DELETION")]
    if not there:
        raise InputError(f"nothing is left of {named}", fix="run its pipeline again")
    return there


def _list(console: Console, pins: list[dict[str, str]]) -> None:
    if not pins:
        print_text(console, "nothing is pinned")
    for each in pins:
        reason = f": {each['reason']}" if each["reason"] else ""
        print_text(console, f"{each['type']} {each['uri']}, by {each['by']}{reason}")
