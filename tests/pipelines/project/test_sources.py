"""What is remembered of source files: right after every kind of change, and worth nothing when in doubt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines.project import closure, our_sources, sources
from drivetrain.pipelines.project.sources import read_source

HOUR = 3_600_000_000_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache" / "drivetrain"
    forget()


def save() -> None:
    """As when a process ends."""
    sources._memory().save()


def forget() -> None:
    """As in a new process."""
    sources._memory.cache_clear()
    sources._known.cache_clear()
    sources._parsed.cache_clear()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are parsed from now on."""
    files: list[str] = []
    real = sources._computed

    def computed(path: str, text: bytes) -> sources.SourceFile:
        files.append(Path(path).name)
        return real(path, text)

    monkeypatch.setattr(sources, "_computed", computed)
    return files


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the clock, by which a file is read, be some nanoseconds ahead of the clock that dates files."""
    real = time.time_ns

    def ahead(by: int) -> None:
        monkeypatch.setattr("time.time_ns", lambda: real() + by)

    return ahead


def test_a_settled_file_is_parsed_once(
    tmp_path: Path, parsed: list[str], later: Callable[[int], None], folder: Path
) -> None:
    file = tmp_path / "module.py"
    file.write_text("from .a import b as c\nimport d\nx = 1\n")
    later(HOUR)
    first = read_source(str(file))
    save()
    forget()
    assert read_source(str(file)) == first
    assert parsed == ["module.py"]
    assert first.imports == ((1, "a", (("b", "c"),)), (0, "d", ()))
    assert first.names == {"c", "d", "x"}
    assert [file.name for file in folder.iterdir()] == [sources._memory()._file.name]


def test_a_process_writes_down_what_it_knows_when_it_ends(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    code = (
        "import sys, time; now = time.time_ns(); time.time_ns = lambda: now + int(sys.argv[2])\n"
        "from drivetrain.pipelines.project.sources import read_source; read_source(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "module.py", str(HOUR)], check=True)
    (memory,) = folder.iterdir()
    assert sources._loaded(memory).keys() == {str(tmp_path / "module.py")}


def test_a_text_is_parsed_once_whatever_file_it_is_in(tmp_path: Path) -> None:
    """A pipeline.py is known of more than another module; an edit that is undone is the text from before."""
    text = "import config\nconfig.x = 1\n"
    files = [tmp_path / name for name in ("model.py", "copy.py", "pipeline.py")]
    for file in files:
        file.write_text(text)
    model, copied, pipeline = (read_source(str(file)) for file in files)
    assert model == copied == pipeline._replace(acts_on=frozenset())
    assert pipeline.acts_on == {"config"}
    assert sources._parsed.cache_info().misses == 2
    files[0].write_text("import config\nconfig.x = 12\n")
    assert read_source(str(files[0])).syntax != model.syntax
    files[0].write_text(text)
    assert read_source(str(files[0])) == model
    assert sources._parsed.cache_info().misses == 3


def test_each_file_of_a_text_that_is_not_python_is_named(tmp_path: Path) -> None:
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text("x = 1\ny = (\n")
        with pytest.raises(BuildError, match=f"{name}:2"):
            read_source(str(tmp_path / name))


def test_a_file_that_just_changed_is_not_remembered(tmp_path: Path, parsed: list[str]) -> None:
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    for _ in range(2):
        read_source(str(file))
        save()
        forget()
    assert parsed == ["module.py"] * 2


@pytest.mark.parametrize("change", ["edited", "same size and date", "replaced", "date alone"])
def test_a_change_is_seen(change: str, tmp_path: Path, parsed: list[str], later: Callable[[int], None]) -> None:
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    before = file.stat()
    later(HOUR)
    first = read_source(str(file))
    save()
    if change == "edited":
        file.write_text("x = 12\n")
    elif change == "same size and date":
        file.write_text("x = 2\n")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "replaced":
        (tmp_path / "other.py").write_text("x = 2\n")
        (tmp_path / "other.py").rename(file)
    else:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    for _ in range(2):  # in this process and in the next
        second = read_source(str(file))
        assert (second == first) == (change == "date alone")
        forget()
    assert len(parsed) >= 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"module", b"modulo", 1)),
        lambda file: file.write_bytes(b"not a memory\n{}"),
    ],
)
def test_a_damaged_memory_is_begun_anew(
    damage: Callable[[Path], object], tmp_path: Path, parsed: list[str], later: Callable[[int], None]
) -> None:
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    later(HOUR)
    first = read_source(str(file))
    save()
    damage(sources._memory()._file)
    forget()
    assert read_source(str(file)) == first
    assert parsed == ["module.py"] * 2
    save()
    forget()
    read_source(str(file))
    assert len(parsed) == 2


def test_a_folder_that_cannot_be_written_to_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Callable[[int], None]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    later(HOUR)
    read_source(str(file))
    save()
    assert (tmp_path / "file").read_bytes() == b""


def test_another_users_memory_is_not_believed(
    tmp_path: Path, parsed: list[str], later: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    later(HOUR)
    read_source(str(file))
    save()
    forget()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    read_source(str(file))
    assert parsed == ["module.py"] * 2


def test_two_that_write_at_once_keep_what_both_know(tmp_path: Path, later: Callable[[int], None]) -> None:
    later(HOUR)
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    memories = [sources._Memory(sources._memory()._file) for _ in range(2)]
    for name, memory in zip(("a.py", "b.py"), memories, strict=True):
        path = str(tmp_path / name)
        memory.put(path, sources.stamp_of(path), 0, HOUR, "module")
    for memory in memories:
        memory.save()
    text = sources._memory()._file.read_bytes().partition(b"\n")[2]
    assert json.loads(text).keys() == {str(tmp_path / "a.py"), str(tmp_path / "b.py")}


def test_what_was_read_longest_ago_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST", 2)
    memory = sources._memory()
    for number in range(3):
        memory.put(f"{number}.py", (1,), 0, HOUR + number, "module")
    memory.save()
    assert sources._loaded(memory._file).keys() == {"1.py", "2.py"}


@pytest.mark.parametrize(("text", "says"), [(b"x = (", "never closed"), (b"x = 1\0", "null bytes")])
def test_what_is_not_python_is_named(text: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_bytes(text)
    with pytest.raises(BuildError, match=says) as error:
        read_source(str(tmp_path / "module.py"))
    assert "module.py" in str(error.value)


@pytest.mark.parametrize(
    ("change", "reached"),
    [
        (lambda home: None, "drivetrain.room.first"),
        (lambda home: (home / "room" / "__init__.py").write_text("from .second import x\n"), "drivetrain.room.second"),
        (lambda home: (home / "room" / "x.py").touch(), "drivetrain.room.first"),
        (lambda home: (home / "user.py").write_text("from .room.second import x\n"), "drivetrain.room.second"),
        (
            lambda home: [
                (home / "room" / "first.py").unlink(),
                (home / "room" / "first").mkdir(),
                (home / "room" / "first" / "__init__.py").touch(),
            ],
            "drivetrain.room.first",
        ),
    ],
    ids=["nothing", "a re-export", "a new module", "the module itself", "a package for a module"],
)
def test_where_imports_of_ours_lead_is_remembered_until_it_changes(
    change: Callable[[Path], object],
    reached: str,
    tmp_path: Path,
    later: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = tmp_path / "drivetrain"
    (home / "room").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "user.py": "import numpy\nfrom .room import x\n",
        "room/__init__.py": "from .first import x\n",
        "room/first.py": "x = 1\n",
        "room/second.py": "x = 2\n",
    }.items():
        (home / name).write_text(text)
    monkeypatch.setattr(closure, "_HOME", home)

    def user() -> closure._Ours | None:
        """As in a new process, which leaves what it knows to the next."""
        forget()
        for remembered in (closure._ours, closure._find_ours, closure._packages, our_sources.read_ours):
            remembered.cache_clear()
        module = closure._ours("drivetrain.user")
        save()
        return module

    try:
        later(HOUR)
        before = user()
        assert before is not None
        assert before.reaches == ("drivetrain.room.first",)
        assert user() == before
        assert our_sources.read_ours.cache_info().currsize == 0
        change(home)
        later(2 * HOUR)
        module = user()
        assert module is not None
        assert module.reaches == (reached,)
        assert module == user()
    finally:
        for remembered in (closure._ours, closure._find_ours, closure._packages, our_sources.read_ours):
            remembered.cache_clear()


def test_what_a_module_was_before_its_edits_does_not_stay_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("RATE = 1\n")
    stamp = sources.stamp_of(str(file))
    for edit in range(5000):  # as of a module that is edited in a notebook's long life
        sources._known(str(file), stamp._replace(modified=edit))
    known = sources._known.cache_info()
    assert known.currsize == known.maxsize
    assert known.currsize < 5000
