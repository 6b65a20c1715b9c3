"""docs/mistakes.md, mistake by mistake: each is made in a real project, and what the user sees is what the page says.

`python -m drivetrain.tests.test_mistakes` writes into the page what is said today, for people to judge in the diff.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli

HOUSE = Path(__file__).parents[1]
PAGE = HOUSE / "docs" / "mistakes.md"
PROJECT = Path(__file__).parent / "fixtures" / "penguins"
MARKS: Final = {
    "Python": ("engine",),
    "Kubeflow": ("kubeflow",),
    **dict.fromkeys(("features.py", "model.py", "What takes the model"), ("slow", "engine")),
}
"""What the sections' mistakes need; the slow ones are found in the midst of a run, by JAX or by what was trained."""
UNKNOWN: Final = "20200101-000000-abcd"
"""A run that the page makes up."""


@dataclass(frozen=True)
class Mistake:
    """One entry of the page: what is changed in the project, what is then typed, what is said.

    Attributes:
        section: The heading above it.
        name: Its own.
        changes: The lines of its diff.
        typed: What is typed, a shell's lines or Python's.
        said: What is printed on standard error, or the exception; a last line names the exit code, if not 2.
    """

    section: str
    name: str
    changes: str
    typed: str
    said: str

    @property
    def block(self) -> str:
        """What stands between the fences."""
        return f"{self.typed}\n{self.said}\n" if self.said else f"{self.typed}\n"


ENTRY: Final = re.compile(
    r"^### (?P<name>[^\n]+)\n\n(?:```diff\n(?P<changes>.*?)```\n\n)?```(?:console|pycon)\n(?P<block>.*?)```$",
    re.M | re.S,
)


def mistakes(page: str) -> list[Mistake]:
    """The entries of the page, from top to bottom."""
    return [
        _mistake(section.partition("\n")[0], entry)
        for section in page.split("\n## ")[1:]
        for entry in ENTRY.finditer(section)
    ]


def _mistake(section: str, entry: re.Match[str]) -> Mistake:
    lines = entry["block"].splitlines()
    typed = [line for line in lines if line.startswith(("$ ", ">>> ", "... "))]
    return Mistake(section, entry["name"], entry["changes"] or "", "\n".join(typed), "\n".join(lines[len(typed) :]))


class Desk:
    """The project as the page begins with it, with all that it has run so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.restore()
        self.shell("$ drivetrain run penguins --to ExampleValidator")

    def restore(self) -> None:
        """Undo what was changed; runs and caches stay."""
        for path in self.folder.iterdir():
            if path.name != ".drivetrain":
                path.chmod(0o700)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(PROJECT, self.folder / "penguins", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(str(distribution("palmerpenguins").locate_file("palmerpenguins/data/penguins.csv")), "penguins")

    def change(self, changes: str) -> None:
        """Apply a diff: the file's name, then lines to remove, to add, and to find."""
        for change in re.split(r"^(?=[^-+ \n])", changes, flags=re.M)[1:]:
            name, _, diff = change.partition("\n")
            path, lines = self.folder / "penguins" / name, diff.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            text = path.read_text("utf-8") if path.exists() else ""
            assert not old or text.count(old) == 1, f"{name} has {text.count(old)} times:\n{old}"
            path.write_text(text.replace(old, new) if old else new + text, "utf-8")

    def shell(self, typed: str) -> str:
        """Type lines; gives what the last said on standard error, or of a stop, and its exit code where it is not 2."""
        said = ""
        for line in typed.splitlines():
            verb, _, arguments = line.removeprefix("$ ").partition(" ")
            if verb == "drivetrain":
                result = CliRunner().invoke(cli, arguments.split(), prog_name="drivetrain")
                stop = re.search(r"^stopped by .*?(?=^  report: )", result.stdout, re.M | re.S)
                said = stop[0] if stop else result.stderr
                said += f"exit code: {result.exit_code}\n" if result.exit_code != 2 else ""
            else:
                subprocess.run(line.removeprefix("$ "), shell=True, check=True)
        return self._plain(said)

    def python(self, typed: str) -> str:
        """Type Python; gives the exception of the last statement."""
        *first, last = ast.parse("\n".join(line[4:] for line in typed.splitlines())).body
        space: dict[str, Any] = {}
        exec(compile(ast.Module(first, []), "<stdin>", "exec"), space)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever a user gets, compared word by word
            exec(compile(ast.Module([last], []), "<stdin>", "exec"), space)
        return self._plain(f"{raised.type.__name__}: {raised.value}")

    def see(self, mistake: Mistake) -> str:
        """Make a mistake, and give what is said."""
        self.restore()
        self.change(mistake.changes)
        return self.python(mistake.typed) if mistake.typed.startswith(">>>") else self.shell(mistake.typed)

    def _plain(self, said: str) -> str:
        """With paths from the folder on, and without what differs from run to run."""
        lines = said.replace(f"{self.folder}/", "").replace(str(self.folder), "this folder").splitlines()
        text = "\n".join(line.rstrip() for line in lines if not line.startswith("root "))
        return re.sub(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}", lambda run: run[0] if run[0] == UNKNOWN else "RUN", text)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    yield from _desk_in(tmp_path_factory.mktemp("mistakes"))


def _desk_in(folder: Path) -> Iterator[Desk]:
    before = os.environ.get("DRIVETRAIN_ROOT", "")
    os.environ["DRIVETRAIN_ROOT"] = str(folder / ".drivetrain")
    with chdir(folder):
        yield Desk(folder)
    os.environ["DRIVETRAIN_ROOT"] = before


MISTAKES = mistakes(PAGE.read_text("utf-8"))


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(each, id=each.name, marks=[getattr(pytest.mark, name) for name in MARKS.get(each.section, ())])
        for each in MISTAKES
    ],
)
def test_what_the_page_says_is_said(desk: Desk, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import pandas" in mistake.typed:
        pytest.importorskip("pandas")
    if "drivetrain serve" in mistake.typed:
        pytest.importorskip("httptools")
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(desk.folder / ".drivetrain"))
    assert desk.see(mistake) == mistake.said


def test_the_page_tells_of_sixty_at_least() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
    assert len(MISTAKES) == len(re.findall(r"^### ", PAGE.read_text("utf-8"), re.M)), "each is read as an entry"


def _rewrite(only: str) -> None:
    """Write what is said today into the page, of the entries whose section or name holds a text."""
    page = PAGE.read_text("utf-8")
    with TemporaryDirectory() as folder:
        for desk in _desk_in(Path(folder).resolve()):
            for mistake in mistakes(page):
                if only in f"{mistake.section} / {mistake.name}":
                    today = replace(mistake, said=desk.see(mistake))
                    before, heading, after = page.partition(f"### {mistake.name}\n")
                    page = before + heading + after.replace(mistake.block, today.block, 1)
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    _rewrite(*sys.argv[1:] or [""])
