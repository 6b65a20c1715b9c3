"""Versions of distributions are those that `importlib.metadata` gives, however they lie on the path."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from drivetrain.pipelines.project import distributions
from drivetrain.pipelines.project.distributions import file_of, version_of
from hypothesis import given
from hypothesis import strategies as st

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def asked_anew() -> None:
    version_of.cache_clear()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write("a", "Some.Name-1.0.dist-info", version="1.0")` makes a distribution in a folder of the path."""

    def make(folder: str, info: str, version: str, file: str = "METADATA", record: str = "") -> Path:
        at = tmp_path / folder / info
        at.mkdir(parents=True)
        (at / file).write_text(f"Metadata-Version: 2.1\nName: any\nVersion: {version}\n\nVersion: 0\n")
        if record:
            (at / "RECORD").write_text(record)
        if str(at.parent) not in sys.path:
            monkeypatch.setattr(sys, "path", [*sys.path, str(at.parent)])
        return at

    return make


@pytest.mark.parametrize("by_library", [False, True])
def test_every_installed_distribution_has_the_librarys_version(
    monkeypatch: pytest.MonkeyPatch, by_library: bool
) -> None:
    if by_library:
        monkeypatch.setattr(distributions, "_folders", lambda: None)
    names = {each.metadata["Name"] for each in metadata.distributions()}
    assert len(names) > 10
    assert {name: version_of(name) for name in names} == {name: metadata.version(name) for name in names}
    located = {name: str(metadata.distribution(name).locate_file("a/b.csv")) for name in names}
    assert {name: str(file_of(name, "a/b.csv")) for name in names} == located
    assert file_of("no-such-distribution", "a/b.csv") is None


def test_modules_of_other_names_are_found_by_what_distributions_hold() -> None:
    holders = metadata.packages_distributions()
    for module in ("sklearn", "yaml", "PIL", "grpc", "google_crc32c", "dateutil", "attr"):
        assert version_of(module) in {metadata.version(name) for name in holders[module]}, module
    assert version_of("no_such_module_anywhere") is None
    assert version_of("drivetrain.pipelines") is None


@given(name=st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,6}[A-Za-z0-9])?", fullmatch=True))
def test_names_are_compared_as_the_library_does(name: str) -> None:
    assert distributions._normalized(name) == metadata.Prepared.normalize(name)  # type: ignore[attr-defined]


def test_the_first_on_the_path_counts_and_what_is_installed_later_is_seen(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delattr(metadata, "distributions")  # it is not asked
    assert version_of("quux") is None
    write("b", "quux-2.0.dist-info", "2.0")
    version_of.cache_clear()
    assert version_of("quux") == metadata.version("quux") == "2.0"
    write("c", "Quux-3.0.dist-info", "3.0")
    version_of.cache_clear()
    assert version_of("quux") == metadata.version("quux") == "2.0"
    write("c", "holder-4.0.dist-info", "4.0", record="quuz/__init__.py,,\n")
    version_of.cache_clear()
    assert version_of("quuz") == "4.0"


@pytest.mark.parametrize("name", ["quux", "other"])
def test_other_forms_are_the_librarys(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As of a develop install of long ago, an egg, an archive, or a finder of distributions that somebody installed."""
    write("a", "other-5.0.dist-info", "5.0")
    write("b", "quux.egg-info", "1.5", file="PKG-INFO")
    assert distributions._folders() is None
    assert version_of(name) == metadata.version(name) == {"quux": "1.5", "other": "5.0"}[name]


def test_archives_and_finders_are_the_librarys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("quux-1.6.dist-info/METADATA", "Name: quux\nVersion: 1.6\n")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(tmp_path / "a.zip")])
        assert version_of("quux") == metadata.version("quux") == "1.6"
    version_of.cache_clear()

    class Finder(metadata.DistributionFinder):
        def find_spec(self, *arguments: object) -> None:
            """It has no modules."""

        def find_distributions(self, context: metadata.DistributionFinder.Context = ...) -> list[metadata.Distribution]:  # type: ignore[assignment]
            (tmp_path / "quux-1.7.dist-info").mkdir(exist_ok=True)
            (tmp_path / "quux-1.7.dist-info" / "METADATA").write_text("Name: quux\nVersion: 1.7\n")
            return list(PathFinder.find_distributions(metadata.DistributionFinder.Context(path=[str(tmp_path)])))

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert version_of("quux") == metadata.version("quux") == "1.7"
