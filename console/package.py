"""`package`: a project's folder as a wheel, seen to build the same pipeline."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..errors import DrivetrainError, InputError
from .exit_codes import OK
from .options import ConsoleSettings, pipeline_option, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines import Pipeline
    from ..pipelines.project.wheel import Wheel


_MANY: Final = 20
"""Files that are listed, of either kind."""
_NEVER_MEANT: Final = ("hidden", "made by tools", "a virtual environment")
"""Reasons why something is left out that nobody would want in a wheel."""


@click.command(
    epilog="\b\nExample:\n  drivetrain package examples/flights -o dist\n"
    "  drivetrain package shop -o dist --include 'sql/*.sql' --allow secretary.csv\n"
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    metavar="DIR",
    help="Where the wheel is put.",
)
@click.option(
    "--include", multiple=True, metavar="PATTERN", help="More files than the pipeline and pyproject.toml name."
)
@click.option("--allow", multiple=True, metavar="PATTERN", help="Files that hold no secret, whatever their names say.")
@click.option("--max-size", default="10MB", show_default=True, metavar="SIZE", help="Of a file, at most.")
@pipeline_option
@shared
def package(
    settings: ConsoleSettings,
    folder: Path,
    out: Path,
    include: tuple[str, ...],
    allow: tuple[str, ...],
    max_size: str,
    which: str | None,
) -> int:
    """Build a wheel of a project for other machines: its modules, and the files that it names.

    Those are the files in FOLDER that its nodes read, or its modules while they are imported (a component.yaml, a
    notebook), and what --include and its pyproject.toml name.

    What is in it is listed, and so is what is not. Built again, it is the same to the byte.
    """
    from ..digest import write_durably
    from ..pipelines.ir.options import parse_bytes
    from ..pipelines.project.wheel import build_wheel

    try:
        largest = parse_bytes(max_size)
    except DrivetrainError as error:
        raise InputError(error.message, fix=error.fix) from None
    wheel = build_wheel(folder, include, largest, files=needed_files(folder, which), allow=allow)
    digest = verified_digest(folder, wheel, which)
    path = out / wheel.name
    out.mkdir(parents=True, exist_ok=True)
    write_durably(path, wheel.data)
    answer = {
        "path": str(path),
        "bytes": len(wheel.data),
        "pipeline": digest,
        "files": [{"path": name, "bytes": size} for name, size in wheel.files],
        "left_out": [{"path": name, "reason": reason} for name, reason in wheel.left_out],
    }
    settings.answer(answer, lambda console: _show(console, path, wheel))
    return OK


def needed_files(folder: Path, which: str | None = None) -> list[str]:
    """The files in a project's folder that its pipeline names or its modules read while they are imported.

    Raises:
        BuildError: The pipeline is wrong.
    """
    from ..pipelines import load_pipeline
    from ..pipelines.project.functions import files_read, package_name

    if not (folder / "pipeline.py").is_file():
        return []  # building the wheel says so
    patterns = {pattern for _, pattern in _files(load_pipeline(folder, which).build())}
    named = {path for pattern in patterns for path in _below(folder, pattern)}
    root = folder.resolve()
    read = (path.resolve() for path in files_read(package_name(root)))
    return sorted({*named, *(path.relative_to(root).as_posix() for path in read if path.is_relative_to(root))})


def verified_digest(folder: Path, wheel: Wheel, which: str | None = None) -> str:
    """The digest of the pipeline that is built from the wheel alone.

    Raises:
        InputError: It is not built, is another one than here, or a file that it names is here and not in the wheel.
    """
    from ..pipelines import load_pipeline

    here = load_pipeline(folder, which).build()
    packed = {name for name, _ in wheel.files}
    for node, pattern in _files(here):
        if missing := [path for path in _below(folder, pattern) if path not in packed]:
            raise InputError(
                f"{node} names {pattern!r}, and {missing[0]} is not in the wheel",
                fix=f"add it to [tool.drivetrain.package] include, or give --include {missing[0]}",
            )
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        archive.extractall(scratch)
        try:
            there = load_pipeline(Path(scratch, wheel.package), here.name).build()
        except DrivetrainError as error:
            raise InputError(
                f"the pipeline cannot be built from the wheel alone: {error.message.replace(scratch + '/', '')}",
                fix="name what is missing with --include, or in [tool.drivetrain.package] include",
            ) from None
    if there.digest != here.digest:
        raise InputError(
            "from the wheel alone another pipeline is built than here",
            fix="see what it reads while it is built, and name that with --include",
        )
    return there.digest


def _files(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """The patterns of files on this machine that nodes name, as far as they are known before a run."""

    def patterns(value: Any) -> Iterator[str]:  # Any: JSON
        if isinstance(value, dict):
            named = value.get("$files")
            pattern = named[0] if isinstance(named, list) and named else named
            if isinstance(pattern, str) and "://" not in pattern and not Path(pattern).is_absolute():
                yield pattern
            for each in value.values():
                yield from patterns(each)
        elif isinstance(value, list):
            for each in value:
                yield from patterns(each)

    for node in pipeline.nodes:
        for _, value in node.parameters:
            yield from ((node.id, pattern) for pattern in patterns(value))


def _below(folder: Path, pattern: str) -> list[str]:
    """The project's own files that a pattern finds."""
    try:
        return [path.relative_to(folder).as_posix() for path in folder.glob(pattern) if path.is_file()]
    except (ValueError, NotImplementedError):  # it leads elsewhere, or is not a pattern
        return []


def _show(console: Console, path: Path, wheel: Wheel) -> None:
    from rich.markup import escape

    # What a person may have forgotten is said first by name; what tools left there, in one line.
    missed = [(name, reason) for name, reason in wheel.left_out if reason not in _NEVER_MEANT]
    others = [name for name, reason in wheel.left_out if reason in _NEVER_MEANT]
    for name, size in wheel.files[:_MANY]:
        console.print(f"  {escape(name)}  [dim]{size:,} bytes[/]", soft_wrap=True)
    if len(wheel.files) > _MANY:
        console.print(f"  and {len(wheel.files) - _MANY:,} more, which --json lists")
    for name, reason in missed[:_MANY]:
        console.print(f"[dim]- {escape(name)}: left out, {reason}[/]", soft_wrap=True)
    if len(missed) > _MANY:
        console.print(f"[dim]- and {len(missed) - _MANY:,} more left out, which --json lists[/]")
    if others:
        more = f" and {len(others) - 3:,} more" if others[3:] else ""
        console.print(f"[dim]- {escape(', '.join(others[:3]))}{more}: hidden, or made by tools[/]", soft_wrap=True)
    console.print(f"{escape(str(path))}: {len(wheel.files)} files, {len(wheel.data):,} bytes", soft_wrap=True)
