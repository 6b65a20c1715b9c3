"""What README.md and docs/ say, against the code: the snippet runs, the lists are whole, the links lead somewhere."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from drivetrain.console.cli import cli
from drivetrain.tests.data.flights import month

HOUSE = Path(__file__).parents[1]
README = (HOUSE / "README.md").read_text("utf-8")
PAGES = [HOUSE / "README.md", *sorted((HOUSE / "docs").rglob("*.md"))]


def test_the_readme_on_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    for number in (1, 6):
        pq.write_table(month(number), f"2013-{number:02}.parquet")
    (snippet,) = (code for code in re.findall(r"```python\n(.*?)```", README, re.S) if "data.statistics" in code)
    space: dict[str, Any] = {}
    shown: list[Any] = []
    for statement in ast.parse(snippet).body:
        if isinstance(statement, ast.Expr):
            shown.append(eval(ast.unparse(statement), space))
        else:
            exec(ast.unparse(statement), space)
    (passed, summary), rows, drifted, checked = shown
    assert f"# {passed}, '{summary}'" in snippet
    assert f"the {rows.num_rows} flights" in snippet
    assert str(drifted).startswith("('month', 'day', 'dep_delay', ")
    assert not checked.passed
    assert space["data"].validate("2013-06.parquet", space["schema"]).passed


def test_the_readme_lists_every_extra_and_verb() -> None:
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text("utf-8"))["project"]
    extras = README.partition("| extra | for |")[2].partition("\n\n")[0]
    assert {name for name in re.findall(r"`(\w+)`", extras) if name not in ("http", "kubeflow")} >= (
        project["optional-dependencies"].keys() - {"kubeflow"}
    )
    shell = README.partition("\n## The shell\n")[2].partition("\n## ")[0]
    verbs = "\n".join(line for line in shell.splitlines() if line.startswith("| `drivetrain "))
    assert [verb for verb in cli.commands if not re.search(rf"`(drivetrain )?{verb}\b", verbs)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(HOUSE)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if not path.startswith(("http:", "https:")):
            found = page.parent / path if path else page
            assert found.exists(), target
            assert not anchor or anchor in _anchors(found), target


def test_the_index_lists_every_page() -> None:
    index = (HOUSE / "docs" / "README.md").read_text("utf-8")
    pages = [page.relative_to(HOUSE / "docs").as_posix() for page in PAGES[1:]]
    assert [page for page in pages if f"({page})" not in index and page != "README.md"] == []


def test_the_architecture_places_every_module_of_the_data_package() -> None:
    text = (HOUSE / "docs" / "architecture.md").read_text("utf-8")
    section = text.partition("## The data package")[2].partition("\n## ")[0]
    placed = re.findall(r"^\| (?:\d \| )?((?:`[a-z_]+/?` ?)+)\|", section, re.M)
    names = [name for row in placed for name in re.findall(r"`([a-z_]+)/?`", row)]
    data = HOUSE / "data"
    there = {path.stem for path in data.glob("*.py")} | {path.parent.name for path in data.glob("*/__init__.py")}
    assert sorted(names) == sorted(there - {"__init__"})


def _anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_file_that_architecture_names_is_there() -> None:
    page = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([a-z_0-9/]+/[a-z_0-9/]*\.py|[a-z_]+\.py)`", page)) | set(
        re.findall(r"`((?:\w+/)+)`", page)
    )
    paths -= {"content/", "extra/", "artifacts/", "logs/", "work/"}  # of a run, not of the code
    folders = ["", "data/", "data/reading/", "engine/", "pipelines/"]  # the tables name files without these
    missing = [path for path in paths if not any((HOUSE / folder / path).exists() for folder in folders)]
    assert len(paths) > 50
    assert missing == []


def test_every_folder_of_code_is_in_architecture() -> None:
    page = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ("data", "engine", "pipelines"):
        for folder in (HOUSE / room).iterdir():
            if (folder / "__init__.py").exists():
                assert f"`{folder.name}/`" in page, f"{room}/{folder.name}"
