"""`bundle`: what a saved program takes and gives, whether it is whole, whose it is, how coming JAXes can read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import CRASH, OK
from .options import ConsoleSettings, print_text, shared, write_page
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..engine import Bundle, BundleCheck

_KEY = click.Path(path_type=Path, dir_okay=False)
_TIMEOUT = click.option(
    "--timeout", type=click.FloatRange(min=1), default=600.0, show_default=True, help="Seconds that it may take."
)
_PATH = click.argument("path", type=click.Path(path_type=Path, file_okay=False))


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain bundle show served/flights/1\n  drivetrain bundle verify served/flights/1\n",
)
def bundle() -> None:
    """See, check, sign and renew a bundle: a saved transform or model."""


@bundle.command(
    epilog="\b\nExample:\n  drivetrain bundle show served/flights/1\n  drivetrain bundle show model --json\n"
    "  drivetrain bundle show model --html model.html\n"
)
@_PATH
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page: the graph drawn, every node with its cost.",
)
@shared
def show(settings: ConsoleSettings, path: Path, page: Path | None) -> int:
    """Print a bundle's signatures, operations, weights, files with sizes and digests, and what exported it."""
    from ..engine import Bundle

    loaded = Bundle.load(path)
    description = loaded.describe()
    if page is not None:
        write_page(page, loaded.to_html())
    written = {"html": str(page)} if page is not None else {}
    settings.answer(
        {"path": str(path), **description, **written}, lambda console: _show(console, path, loaded, description)
    )
    return OK


@bundle.command(
    epilog="\b\nExit codes:\n  0  whole\n  1  something is wrong\n\n"
    "\b\nExample:\n  drivetrain bundle verify served/flights/1\n"
    "  drivetrain bundle verify served/flights/1 --public-key pub.pem --require-signed\n"
)
@_PATH
@click.option(
    "--public-key", type=_KEY, help="A public key in PEM (P-256): a signature that the bundle has must be of this key."
)
@click.option("--require-signed", is_flag=True, help="A bundle without a signature is wrong, too; needs --public-key.")
@_TIMEOUT
@shared
def verify(settings: ConsoleSettings, path: Path, public_key: Path | None, require_signed: bool, timeout: float) -> int:
    """Check every digest and every program, and run each signature once on a row of nulls.

    The bundle may be untrusted: a child process does it, which may write no file, and not take longer than --timeout
    or more than half of the machine's memory.
    """
    from ..engine import Limits, verify_bundle

    checks = verify_bundle(path, limits=Limits(timeout), public_key=public_key, require_signed=require_signed)
    whole = all(check.ok for check in checks)
    answer = {
        "path": str(path),
        "whole": whole,
        "checks": [asdict(check) for check in checks],
    }
    settings.answer(answer, lambda console: print_checks(console, checks))
    return OK if whole else CRASH


def print_checks(console: Console, checks: Sequence[BundleCheck]) -> None:
    """Print a line for each check of a bundle, with ok, bad, or -- for what was not checked."""
    from rich.markup import escape

    for check in checks:
        mark = "[red]bad[/]" if not check.ok else "[green]ok[/] " if check.checked else "[dim]--[/] "
        console.print(f"{mark} {escape(check.what)}: {escape(check.text)}", soft_wrap=True)


@bundle.command(epilog="\b\nExample:\n  drivetrain bundle sign served/flights/1 --key key.pem\n")
@_PATH
@click.option("--key", type=_KEY, required=True, help="A private key in PEM (P-256).")
@click.option(
    "--password-from", metavar="VARIABLE", help="The environment variable that holds the key's password, if it has one."
)
@shared
def sign(settings: ConsoleSettings, path: Path, key: Path, password_from: str | None) -> int:
    """Sign a bundle: write PATH.sig beside it, which `verify --public-key` and model_signing check offline."""
    import os

    from ..engine import sign_bundle
    from ..errors import InputError

    password = os.environ.get(password_from) if password_from else None
    if password_from and password is None:
        raise InputError(f"the environment variable {password_from} is not set", fix="set it to the key's password")
    signature = sign_bundle(path, key, None if password is None else password.encode())
    answer = {"path": str(path), "signature": str(signature)}
    settings.answer(answer, lambda console: print_text(console, str(signature)))
    return OK


@bundle.command(epilog="\b\nExample:\n  drivetrain bundle refresh served/flights/1 served/flights/2\n")
@_PATH
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@_TIMEOUT
@shared
def refresh(settings: ConsoleSettings, path: Path, out: Path, timeout: float) -> int:
    """Save the bundle at PATH to OUT with its programs exported by this JAX, before a newer one refuses the old.

    Results stay equal to the bit, which is tried; graph, weights and vocabularies are taken over. The bundle may be
    untrusted: a child process runs it, as for verify.
    """
    from ..engine import Limits, refresh_bundle

    done = refresh_bundle(path, out, limits=Limits(timeout))
    answer = {"path": str(out), "rewritten": list(done.rewritten), "kept": list(done.kept)}
    parts = [
        f"{len(names)} {what} ({', '.join(names)})"
        for names, what in ((done.rewritten, "written again"), (done.kept, "taken over: this JAX wrote them"))
        if names
    ]
    said = f"{out}: device programs {'; '.join(parts) or 'none'}"
    settings.answer(answer, lambda console: print_text(console, said))
    return OK


def _show(console: Console, path: Path, loaded: Bundle, description: dict[str, Any]) -> None:  # Any: JSON
    from rich.table import Table

    from ..engine.bundles.inverse import INVERSES

    line = partial(print_text, console)
    export = description["export"]
    line(f"{path}: bundle format {description['version']}, digest {description['digest'][:12]}")
    line(f"exported by JAX {export.get('jax')} for {', '.join(export.get('platforms', ()))}")
    if source := export.get("refreshed_from"):
        line(f"refreshed from {source['digest'][:12]}, exported by JAX {source['jax']}")
    if description["required_extensions"]:
        line(f"requires {description['required_extensions']}")
    for name, signature in loaded.signatures.items():
        line(f"\n{name}")
        for label, specs in (("in", signature.inputs), ("out", signature.outputs)):
            for column, spec in specs.items():
                shape = f"[{','.join(map(str, spec.shape))}]" if spec.shape else ""
                ids = f", {spec.size} ids" if spec.size is not None else ""
                default = f" = {signature.defaults[column]!r}" if column in signature.defaults and label == "in" else ""
                line(f"  {label:>3}  {column}: {spec.dtype}{shape}{ids}{default}")
    line("\nhost ops: " + (", ".join(f"{count} × {op}" for op, count in description["host_ops"].items()) or "none"))
    for name, facts in description["programs"].items():
        ops = ", ".join(f"{count} × {op.split('.', 1)[1]}" for op, count in facts["ops"].items())
        line(f"program {name} (StableHLO {facts['stablehlo']}, convention {facts['calling_convention']}): {ops}")
    numbers = sum(math.prod(shape) for _, _, shape in description["weights"])
    line(f"weights: {len(description['weights'])} arrays, {numbers:,} numbers")
    vocabularies = [f"{name} ({rows:,})" for name, rows in description["assets"] if name != INVERSES]
    line(f"vocabularies: {', '.join(vocabularies) or 'none'}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("file")
    table.add_column("bytes", justify="right")
    table.add_column("sha256")
    for name, size, checksum in description["files"]:
        table.add_row(name, f"{size:,}", checksum[:12])
    console.print()
    console.print(table)
