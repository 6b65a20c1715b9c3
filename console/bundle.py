"""`bundle`: what a saved program takes and gives, whether it is whole, and how to keep it readable by coming JAXes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import CRASH, OK
from .options import ConsoleSettings, shared, write_page
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..engine import Bundle

_PATH = click.argument("path", type=click.Path(path_type=Path, file_okay=False))


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain bundle show serving/flights/1\n  drivetrain bundle verify serving/flights/1\n",
)
def bundle() -> None:
    """See, check and renew a bundle: a saved transform or model."""


@bundle.command(
    epilog="\b\nExample:\n  drivetrain bundle show serving/flights/1\n  drivetrain bundle show model --json\n"
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
    "\b\nExample:\n  drivetrain bundle verify serving/flights/1\n"
)
@_PATH
@shared
def verify(settings: ConsoleSettings, path: Path) -> int:
    """Check every digest and every program, and run each signature once on a row of nulls."""
    from ..engine import verify_bundle

    checks = verify_bundle(path)
    whole = all(check.ok for check in checks)
    answer = {
        "path": str(path),
        "whole": whole,
        "checks": [{"what": check.what, "ok": check.ok, "text": check.text} for check in checks],
    }

    def tell(console: Console) -> None:
        from rich.markup import escape

        for check in checks:
            mark = "[green]ok[/] " if check.ok else "[red]bad[/]"
            console.print(f"{mark} {escape(check.what)}: {escape(check.text)}", soft_wrap=True)

    settings.answer(answer, tell)
    return OK if whole else CRASH


@bundle.command(epilog="\b\nExample:\n  drivetrain bundle refresh serving/flights/1 serving/flights/2\n")
@_PATH
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@shared
def refresh(settings: ConsoleSettings, path: Path, out: Path) -> int:
    """Save the bundle of PATH in OUT with programs written by this JAX: before a coming one refuses the old.

    Results stay equal to the bit, which is tried; graph, weights and vocabularies are taken over.
    """
    from ..engine import refresh_bundle

    done = refresh_bundle(path, out)
    answer = {"path": str(out), "rewritten": list(done.rewritten), "kept": list(done.kept)}
    parts = [
        f"{len(names)} {what} ({', '.join(names)})"
        for names, what in ((done.rewritten, "written anew"), (done.kept, "taken over: this JAX wrote them"))
        if names
    ]
    said = f"{out}: device programs {'; '.join(parts) or 'none'}"
    settings.answer(answer, lambda console: console.print(said, markup=False, soft_wrap=True))
    return OK


def _show(console: Console, path: Path, loaded: Bundle, description: dict[str, Any]) -> None:  # Any: JSON
    from rich.table import Table

    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

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
    line("vocabularies: " + (", ".join(f"{name} ({rows:,})" for name, rows in description["assets"]) or "none"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("file")
    table.add_column("bytes", justify="right")
    table.add_column("sha256")
    for name, size, checksum in description["files"]:
        table.add_row(name, f"{size:,}", checksum[:12])
    console.print()
    console.print(table)
