"""A small project whose components can be told to misbehave, and a home for its runs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.metadata.fsck import fsck
from drivetrain.pipelines import Home, PipelineFunction, load_pipeline, run_pipeline
from drivetrain.pipelines.launcher.processes import MARK
from drivetrain.tests.pipelines import faulty
from drivetrain.tests.pipelines.processes import workers

PARTS = """
    import os, sys, shutil, time
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.pipelines import Files, Fn, current, load, resolve_files

    class Numbers(dt.Artifact):
        total: int = 0
        good: bool = True
        label: str = ""

    class Verdict(dt.Artifact):
        passed: bool = True
        summary: str = ""

    def made(total: int, **properties) -> Numbers:
        numbers = Numbers.new(total=total, **properties)
        (numbers.content / "total.txt").write_text(str(total))
        return numbers

    @dt.component
    def Make(*, count: int = 3, good: bool = True, label: str = "") -> Numbers:
        return made(count, good=good, label=label)

    @dt.component
    def Add(left: Numbers, right: Numbers) -> Numbers:
        return made(left.total + right.total)

    @dt.component
    def Use(numbers: Numbers, *, amount: int = 1, data: Files | None = None) -> Numbers:
        more = sum(int(file.path.read_text()) for file in resolve_files(data).files) if data else 0
        return made(numbers.total + amount + more)

    @dt.component
    def Misbehave(numbers: Numbers, *, code: str) -> Numbers:
        exec(code)
        return made(numbers.total)

    @dt.component(gates="numbers")
    def Check(numbers: Numbers, *, limit: int = 100, code: str = "") -> Verdict:
        exec(code)
        verdict = Verdict.new(passed=numbers.total <= limit, summary=f"{numbers.total} > {limit}")
        (verdict.content / "verdict.txt").write_text(str(verdict.passed))
        return verdict
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """The root `home/.drivetrain` in the test's folder."""
    home = Home(tmp_path / "home" / ".drivetrain")
    yield home
    home.close()


@pytest.fixture
def pipe(project: Callable[..., Path]) -> Callable[..., PipelineFunction[..., object]]:
    """`pipe(body)` is the pipeline with that body, in the project `shop`."""

    def write(body: str, name: str = "shop", **modules: str) -> PipelineFunction[..., object]:
        head = f"import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\ndef {name}(count: int = 3) -> None:\n"
        text = head + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
        return load_pipeline(project("shop", **{"parts": PARTS, "pipeline": text, **modules}))

    return write


@pytest.fixture
def write_files(tmp_path: Path) -> Callable[..., Path]:
    """`write_files("a/b.csv", …)` writes these files, each with rows of its own, and gives their folder."""

    def write(*names: str) -> Path:
        for name in names:
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("name,n\n" + "".join(f"{name},{number}\n" for number in range(6)))
        return tmp_path / "data"

    return write


@pytest.fixture
def nothing_is_left(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """After each test: a clean store, and no process."""
    monkeypatch.setenv(MARK, f"test-{tmp_path}")
    yield
    faulty.waits(lambda: not workers())
    report = fsck(home.store, home.root)
    assert report.clean, report.to_dict()
    assert not list((home.root / "work").rglob("content"))


@pytest.fixture
def nothing_runs_on(home: Home) -> Iterator[None]:
    """After each test: no process of its runs."""
    yield
    faulty.waits(lambda: not faulty.left(home))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each task of the pipeline makes, where nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    home = Home(folder / "home" / ".drivetrain")
    try:
        result = run_pipeline(home, faulty.write(folder))
        assert result.state == "COMPLETE"
        assert (home.base / "lines.txt").read_text().splitlines()[-1] == "Last COMPLETE"
        return faulty.fingerprints(result)
    finally:
        home.close()
