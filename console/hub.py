"""`hub`: what is published at an address, one version of it in full, whether it is whole, and what to clean there."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from .bundle import print_checks
from .exit_codes import CRASH, OK
from .options import ConsoleSettings, print_text, shared
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..engine.hub import Version

_ADDRESS = click.argument("address")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Age(click.ParamType[timedelta]):
    """A time in whole seconds, minutes, hours or days: 90s, 30m, 12h, 1d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        match = re.fullmatch(r"([0-9]{1,9})([smhd])", str(value))
        if match is None or int(match[1]) * _UNITS[match[2]] > 10**9:  # 30 years
            self.fail(f"{value!r} is not an age: write 90s, 30m, 12h or 1d", param, ctx)
        return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


_VERSION = click.option("--version", "number", type=click.IntRange(1), help="Its number; by default the newest.")


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain hub list s3://models/encoder\n  drivetrain hub verify models/encoder\n",
)
def hub() -> None:
    """See, check and clean published modules: an ADDRESS is a folder or a URL prefix."""


@hub.command(
    "list",
    epilog="\b\nExample:\n  drivetrain hub list models/encoder\n  drivetrain hub list s3://models/x --json\n",
)
@_ADDRESS
@shared
def list_(settings: ConsoleSettings, address: str) -> int:
    """List the versions published at ADDRESS, oldest first."""
    from ..engine.hub import versions

    published = versions(address)
    answer = {"address": address, "versions": [_json(version) for version in published]}

    def tell(console: Console) -> None:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("version", "name", "bytes", "digest"):
            table.add_column(heading, justify="right" if heading == "bytes" else "left")
        for version in published:
            table.add_row(str(version.number), version.card.name, f"{version.size:,}", version.digest[:12])
        console.print(table if published else f"{address}: nothing is published here")

    settings.answer(answer, tell)
    return OK


@hub.command(epilog="\b\nExample:\n  drivetrain hub show models/encoder --version 2\n")
@_ADDRESS
@_VERSION
@shared
def show(settings: ConsoleSettings, address: str, number: int | None) -> int:
    """Print a version's card, signatures, digest and files; every file is checked."""
    from ..engine.hub import load
    from ..engine.hub.publishing import chosen
    from ..versions import versions_at

    chosen_version = chosen(versions_at(address), number)
    bundle = load(address, version=chosen_version.number, digest=chosen_version.digest).bundle
    signatures = [f"{name}{signature}" for name, signature in bundle.signatures.items()]
    answer = {
        **_json(chosen_version),
        "signatures": signatures,
        "files": [list(entry) for entry in chosen_version.files],
    }

    def tell(console: Console) -> None:
        page = chosen_version.card.to_markdown("\n".join(signatures))
        print_text(console, f"{address}, version {chosen_version.number}, digest {chosen_version.digest}")
        print_text(console, f"\n{page}")
        for name, size, checksum in chosen_version.files:
            print_text(console, f"{checksum[:12]}  {size:>12,}  {name}")

    settings.answer(answer, tell)
    return OK


@hub.command(
    epilog="\b\nExit codes:\n  0  whole\n  1  something is wrong\n\n\b\nExample:\n  drivetrain hub verify models/x\n"
)
@_ADDRESS
@_VERSION
@shared
def verify(settings: ConsoleSettings, address: str, number: int | None) -> int:
    """Check a version: every digest, every program, each signature once."""
    from ..engine.hub import verify as verify_version

    checks = verify_version(address, version=number)
    whole = all(check.ok for check in checks)
    answer = {"address": address, "whole": whole, "checks": [asdict(check) for check in checks]}
    settings.answer(answer, lambda console: print_checks(console, checks))
    return OK if whole else CRASH


@hub.command(
    epilog="\b\nExample:\n  drivetrain hub clean models/x --dry-run\n  drivetrain hub clean models/x --older-than 12h\n"
)
@_ADDRESS
@click.option(
    "--older-than",
    type=_Age(),
    default="1d",
    show_default=True,
    help="How long a publisher elsewhere may write nothing.",
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be.")
@shared
def clean(settings: ConsoleSettings, address: str, older_than: timedelta, dry_run: bool) -> int:
    """Remove what killed publishers left at ADDRESS: files that no version's record names."""
    from ..engine.hub import clean as clean_up

    gone = clean_up(address, older_than=older_than, dry_run=dry_run)

    def tell(console: Console) -> None:
        for name in gone:
            print_text(console, f"{'would remove' if dry_run else 'removed'} {name}")
        if not gone:
            console.print(f"{address}: nothing to remove", markup=False)

    settings.answer({"address": address, "dry_run": dry_run, "removed": list(gone)}, tell)
    return OK


def _json(version: Version) -> dict[str, Any]:  # Any: JSON
    return {"version": version.number, "digest": version.digest, "bytes": version.size, "card": version.card.to_json()}
