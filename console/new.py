"""`new`: a project to begin with, which runs, and whose tests and types pass."""

from __future__ import annotations

import ast
import keyword
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..errors import InputError
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared

if TYPE_CHECKING:
    from rich.console import Console

TEMPLATES: Final[Mapping[str, str]] = {"minimal": "penguins", "flights": "flights", "taxi-like": "trips"}
"""What a project can be made from → the example that it is a copy of."""
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_PACKAGE: Final = Path(__file__).parents[1]
_NAMED: Final = r"(?:(?<=\bdef )|(?<=\bThe )|(?<=\bserved/)|(?<=\bREGISTRY/)|(?<=\bBUCKET/))"
"""Where the name of an example stands for itself, and not for its data."""


@click.command(epilog="\b\nExample:\n  drivetrain new taxi --from taxi-like\n  drivetrain new work/adelie\n")
@click.argument("folder", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "template",
    type=click.Choice(list(TEMPLATES)),
    default="minimal",
    show_default=True,
    help="344 penguins and a linear model; 336,776 flights, wide and deep; the same with weather and places, in the "
    "style of TFX's taxi example.",
)
@shared
def new(settings: ConsoleSettings, folder: Path, template: str) -> int:
    """Make a project in the folder NAME that runs, with tests, from real data to a pushed model.

    NAME, or the last part of it, becomes the pipeline's name. Nothing that exists is overwritten.
    """
    make_project(folder, template)
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    settings.answer(
        {"folder": str(folder.absolute()), "from": template, "files": files},
        lambda console: _show(console, folder, template),
    )
    return OK


def make_project(folder: Path, template: str) -> None:
    """Make a project, whole or not at all.

    Args:
        folder: Where; its name becomes the pipeline's.
        template: A key of `TEMPLATES`.

    Raises:
        InputError: The name cannot be a pipeline's, there is something in the folder, or it cannot be written.
    """
    name, example = folder.absolute().name, TEMPLATES[template]
    _check_name(name, _PACKAGE / "examples" / example / "pipeline.py")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()) or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder} exists, and nothing is overwritten", fix="choose another name")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.absolute().parent) as scratch:
            project = Path(scratch) / name
            _copy(_PACKAGE / "examples" / example, ("*.py", "*.yaml", "tests/*.py"), rf"{_NAMED}{example}\b", project)
            _copy(_PACKAGE / "console" / "templates", ("*.*", "gitignore", "tests/*.py"), r"\bPROJECT\b", project)
            (project / "gitignore").rename(project / ".gitignore")
            # An example's asks what its own data answers.
            (project / "__init__.py").write_text(f'"""The {name} pipeline, made by `drivetrain new`."""\n', "utf-8")
            project.rename(folder)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}", fix="choose another folder") from None


def _check_name(name: str, pipeline: Path) -> None:
    """See that the function in a template's pipeline.py, and the package that the project is, can have a name."""
    if not name.isidentifier() or keyword.iskeyword(name):
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")
        raise InputError(
            f"{name!r} cannot be the name of a pipeline, which is a Python function",
            fix=f"name it e.g. {better if better and not keyword.iskeyword(better) else 'taxi'}",
        )
    imports = [node for node in ast.parse(pipeline.read_text(encoding="utf-8")).body if isinstance(node, _IMPORTS)]
    if name in {alias.asname or alias.name for node in imports for alias in node.names}:
        raise InputError(f"{name} is what {pipeline.name} imports under this name", fix="choose another name")
    # Not what this process has loaded, and no folder of the working directory, which has no origin.
    specs = (finder.find_spec(name, None) for finder in sys.meta_path)
    if any(spec is not None and spec.origin is not None for spec in specs):
        raise InputError(f"there is a Python module {name}, which the project would hide", fix="choose another name")


def _copy(source: Path, patterns: Iterable[str], placeholder: str, project: Path) -> None:
    """Copy the files of a template, with the name of the project where that of the template stands for itself."""
    for file in sorted(file for pattern in patterns for file in source.glob(pattern)):
        target = project / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(placeholder, project.name, file.read_text(encoding="utf-8"))
        target.write_text(text, encoding="utf-8")


def _show(console: Console, folder: Path, template: str) -> None:
    lines = (
        f"made {folder} from {template}. Next:",
        f"  drivetrain run {folder}    with two extras, in a clone of drivetrain: pip install '.[engine,datasets]'",
        f"  drivetrain run {folder}    again: all comes from the cache",
        f"  cd {folder}; pytest; mypy .",
        f"  {folder}/README.md says what to change where",
    )
    for line in lines:
        print_text(console, line)
