"""`gc`: retention by policy, a dry run first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import DrivetrainError, InputError
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared, who
from .terminal import showing_progress

if TYPE_CHECKING:
    from rich.console import Console

    from ..metadata.retention import Collected, RetentionPlan, RetentionPolicy
    from ..pipelines import Home
    from ..pipelines.launcher.idle_work import IdleWork

_IDLE = "nobody went on with it for a week"


@click.command(
    epilog="\b\nExample:\n  drivetrain gc --keep-last 5 --keep-for 30d\n"
    "  drivetrain gc --policy retention.yaml --apply\n"
    "  drivetrain gc --why artifacts/Trainer/0f3c…/model\n  drivetrain gc --undo\n"
)
@click.option(
    "--policy",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The policy's file; else retention.yaml beside the root's project, where there is one.",
)
@click.option("--keep-last", type=click.IntRange(min=1), metavar="N", help="Keep the outputs of each node's last runs.")
@click.option("--keep-for", metavar="TIME", help="Keep what was made, read or reused within this time: 12h, 30d.")
@click.option("--quota", metavar="BYTES", help="Beyond this, the longest unused goes too: 500GB.")
@click.option("--grace", metavar="TIME", help="How long what is marked can be taken back: 7d unless said; 0 for none.")
@click.option("--apply", is_flag=True, help="Do it: mark what nothing keeps, remove what was marked long enough ago.")
@click.option("--undo", is_flag=True, help="Take back all that is marked and not removed yet.")
@click.option("--why", "asked", metavar="ARTIFACT", help="Only say what becomes of one artifact, and why.")
@shared
def gc(
    settings: ConsoleSettings,
    file: Path | None,
    keep_last: int | None,
    keep_for: str | None,
    quota: str | None,
    grace: str | None,
    apply: bool,
    undo: bool,
    asked: str | None,
) -> int:
    """Remove the payloads that a retention policy does not keep; without --apply, only say which.

    In two steps: what nothing keeps is marked, and removed by a collection after the grace. The history stays, so that
    `lineage` and `why` answer as before. Whatever a policy says, these are kept: pinned artifacts (`drivetrain pin`),
    registered versions, the newest model at each destination, what led to them, and what runs at work use.

    Work folders go too that nobody went on with for a week: checkpoints of a node that failed, and did not run again.

    Safe while pipelines run. One that was interrupted is ended by the next.
    """
    from ..metadata.retention import Collected, collect, plan
    from ..pipelines.launcher.idle_work import idle_work, remove_work
    from ..pipelines.launcher.retention import protections

    if undo:
        chosen = {"--policy": file, "--keep-last": keep_last, "--keep-for": keep_for, "--quota": quota}
        chosen |= {"--grace": grace, "--apply": apply or None, "--why": asked}
        if also := [name for name, value in chosen.items() if value is not None]:
            raise click.UsageError(f"--undo takes back all that is marked, and {also[0]} would change nothing")
        return _undo(settings)
    with settings.home(readonly=not apply) as home:
        policy = _policy(home, file, keep_last, keep_for, quota, grace)
        planned = plan(home.store, home.root, policy, protections(home))
        if asked is not None:
            return _why(settings, home, planned, asked)
        idle = idle_work(home)
        if not apply:
            settings.answer(
                {"applied": False, **planned.to_dict(), "work": _listed(idle)},
                lambda console: _show_plan(console, planned, idle),
            )
            return OK
        with showing_progress("collecting") as progress:
            done = collect(home.store, home.root, planned, who(None), progress)
            if not policy.grace:  # what was marked now goes now
                again = plan(home.store, home.root, policy, protections(home))
                more = collect(home.store, home.root, replace(again, mark=()), who(None), progress)
                done = Collected(
                    done.marked,
                    done.restored,
                    done.deleted + more.deleted,
                    done.freed + more.freed,
                    (*done.left, *more.left),
                )
            gone = remove_work(home, idle)
        answer = {"applied": True, **vars(done), "over_quota": planned.over_quota, "work": _listed(gone)}
        settings.answer(answer, lambda console: _show_collected(console, done, planned, policy, gone))
    return OK


def _listed(work: list[IdleWork]) -> dict[str, Any]:
    return {
        "count": len(work),
        "bytes": sum(each.size for each in work),
        "folders": [str(each.folder) for each in work],
    }


def _policy(
    home: Home,
    file: Path | None,
    keep_last: int | None,
    keep_for: str | None,
    quota: str | None,
    grace: str | None,
) -> RetentionPolicy:
    """The policy of the options, over that of the file."""
    from ..metadata.retention import RetentionPolicy, RetentionRule
    from ..pipelines.ir.options import parse_bytes
    from ..pipelines.launcher.retention import POLICY, read_policy
    from ..pipelines.triggers.durations import seconds_of

    def length(text: str) -> timedelta:
        return timedelta(0) if text in ("0", "0s", "0d") else timedelta(seconds=seconds_of(text))

    default = home.base / POLICY
    if file is None and default.is_file():
        file = default
    rule = RetentionRule(keep_last, length(keep_for) if keep_for else None)
    if file is not None:
        if not rule.keeps_all:
            raise InputError(
                f"the rules are in {file} already", fix="leave --keep-last and --keep-for out, or edit the file"
            )
        policy = read_policy(file)
    elif rule.keeps_all and quota is None:
        raise InputError(
            "there is no retention policy",
            fix=f"write {default}, or say --keep-last 5, --keep-for 30d, or both: what either keeps stays",
        )
    else:  # with a quota alone, whatever is in it stays
        policy = RetentionPolicy((replace(rule, keep_for=timedelta.max) if rule.keeps_all else rule,))
    if quota is not None:
        try:
            policy = replace(policy, quota=parse_bytes(quota))
        except DrivetrainError as error:  # of a file's value it names the line, which a command line has not
            raise InputError(f"--quota: {quota!r} is not an amount of bytes", fix="give e.g. 500GB") from error
    return policy if grace is None else replace(policy, grace=length(grace))


def _undo(settings: ConsoleSettings) -> int:
    from ..metadata.retention import take_back

    with settings.home(readonly=False) as home:
        uris = [each.uri for each in take_back(home.store)]
        settings.answer(
            {"restored": uris}, lambda console: print_text(console, f"{len(uris)} artifacts are in use again")
        )
    return OK


def _why(settings: ConsoleSettings, home: Home, planned: RetentionPlan, asked: str) -> int:
    from .lineage import find_artifact

    artifact = find_artifact(home, asked)
    if artifact is None:
        raise InputError(f"{asked!r} is not an artifact in {home.root}", fix="name a URI that `drivetrain show` prints")
    reasons = {each.id: f"would be marked: {reason}" for each, reason in planned.mark}
    reasons |= {each.id: "would be removed: its grace is over" for each in planned.delete}
    reasons |= {each.id: "marked; its grace goes on" for each in planned.waiting}
    reasons |= {each.id: "marked; would be in use again, as it is kept now" for each in planned.restore}
    reasons |= {number: f"kept: {reason}" for number, reason in planned.kept.items()}
    said = reasons.get(artifact.id, f"{artifact.state}: no policy decides on it")
    settings.answer(
        {"uri": artifact.uri, "type": artifact.type, "state": artifact.state, "decision": said},
        lambda console: print_text(console, f"{artifact.uri}: {said}"),
    )
    return OK


def _show_plan(console: Console, planned: RetentionPlan, idle: list[IdleWork]) -> None:
    from rich.table import Table

    by_kind: dict[tuple[str, str], list[str]] = defaultdict(list)
    for artifact, reason in planned.mark:
        by_kind[artifact.type, f"mark: {reason}"].append(artifact.uri)
    for what, artifacts in (
        ("remove: its grace is over", planned.delete),
        ("in use again: kept now", planned.restore),
        ("wait: its grace goes on", planned.waiting),
    ):
        for artifact in artifacts:
            by_kind[artifact.type, what].append(artifact.uri)
    sizes = dict(planned.sizes)
    for each in idle:
        by_kind["(work folder)", f"remove: {_IDLE}"].append(str(each.folder))
        sizes[str(each.folder)] = each.size
    table = Table(box=None, pad_edge=False)
    for heading in ("artifact", "what would become of it", "number", "size"):
        table.add_column(heading, justify="right" if heading in ("number", "size") else "left")
    for (kind, what), uris in sorted(by_kind.items()):
        size = sum(sizes.get(uri, 0) for uri in uris)
        table.add_row(kind, what, f"{len(uris):,}", _bytes(size))
    if by_kind:
        console.print(table)
    reasons: dict[str, int] = defaultdict(int)
    for reason in planned.kept.values():
        reasons[reason] += 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print_text(console, f"kept {count:,}: {reason}")
    _show_quota(console, planned)
    if planned.mark or planned.delete or planned.restore or idle:
        print_text(console, "nothing was changed; --apply does it, --why ARTIFACT tells of one")
    else:
        print_text(console, "nothing to collect")


def _show_collected(
    console: Console, done: Collected, planned: RetentionPlan, policy: RetentionPolicy, gone: list[IdleWork]
) -> None:
    size = _bytes(planned.size(each for each, _ in planned.mark))
    if done.marked and policy.grace:
        days = policy.grace / timedelta(days=1)
        print_text(
            console,
            f"marked {done.marked:,} artifacts ({size}): removed by a collection in {days:.3g} days or later; "
            "`drivetrain gc --undo` takes it back",
        )
    if done.restored:
        print_text(console, f"{done.restored:,} marked artifacts are in use again: something keeps them now")
    print_text(console, f"removed {done.deleted:,} payloads, {_bytes(done.freed)}")
    if gone:
        folders = f"{len(gone):,} work {'folder' if len(gone) == 1 else 'folders'}"
        print_text(console, f"removed {folders}, {_bytes(sum(each.size for each in gone))}: {_IDLE}")
    if done.left:
        print_text(console, f"{len(done.left):,} changed or are being read, and were left to the next time")
    _show_quota(console, planned)


def _show_quota(console: Console, planned: RetentionPlan) -> None:
    if planned.over_quota:
        print_text(
            console,
            f"{_bytes(planned.over_quota)} over the quota: all else is protected, or of a node's newest run",
        )


def _bytes(size: int) -> str:
    """A size for people, in decimal units."""
    amount, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1000 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.3g} {unit}"
