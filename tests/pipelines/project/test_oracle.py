"""The oracle of cache keys: Python itself. Where an edit leaves the key, and the files read, the content stays too.

That is the same as: whenever the content differs, the key does. So every edit gets a key, and those that keep it run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.digest import digest
from drivetrain.pipelines import FunctionRef
from drivetrain.pipelines.project.closure import closure
from drivetrain.pipelines.project.reads import Reads, first_changed, recording
from drivetrain.pipelines.project.sources import read_source
from drivetrain.tests.pipelines.project.generated_modules import Project, edits, project

_TICKS = itertools.count(10**18, 10**9)
Key = Callable[[FunctionRef], str]


def key_of(ref: FunctionRef) -> str:
    return digest("oracle", closure(ref).counted)


def content(ref: FunctionRef) -> str:
    try:
        return repr(ref.load()())
    except Exception as error:  # a node that fails has no content; that one fails where another did not is a difference
        return f"raised {type(error).__name__}"


def write(path: Path, text: str) -> None:
    """A time of its own for each edit: two within one tick of the clock would be taken for the same file."""
    path.unlink(missing_ok=True)  # what is truncated ext4 sends to the disk at once, and the next edit waits for it
    path.write_text(text)
    tick = next(_TICKS)
    os.utime(path, ns=(tick, tick))


def violations(folder: Path, modules: Project, key: Key, every: int = 1, begin: int = 0) -> Iterator[tuple[str, str]]:
    """(file, edited text) of each edit that changes the content and not the key; and ("", "") of each that was run.

    Args:
        folder: Where the project is written.
        modules: It.
        key: What is tested.
        every: Of so many edits one is tried.
        begin: Which is the first.
    """
    for name, text in modules.items():
        write(folder / name, text)
    ref, reads = FunctionRef(folder, "start:go"), Reads()
    key_before = key(ref)
    with recording(reads):
        content_before = content(ref)
    opened, _ = reads.record(folder, dict(closure(ref).modules), ())
    for name, text in modules.items():
        for edited in itertools.islice(edits(text), begin % every, None, every):
            if edited != text:
                write(folder / name, edited)
                if key(ref) == key_before and first_changed(opened, folder) is None:
                    yield "", ""
                    if content(ref) != content_before:
                        yield name, edited
        write(folder / name, text)


def search(folder: Path, seeds: range, key: Key, every: int = 1) -> tuple[int, list[tuple[str, str]]]:
    """How many edits kept the key, and those of them that changed the content."""
    tried, wrong = 0, list[tuple[str, str]]()
    for seed in seeds:
        shop = folder / f"shop{seed}"
        shop.mkdir()
        for name, edited in violations(shop, project(seed), key, every, seed):
            tried += not name
            wrong += [(name, edited)] if name else []
    return tried, wrong


def test_where_the_key_stays_the_content_stays(tmp_path: Path) -> None:
    tried, wrong = search(tmp_path, range(6), key_of, every=20)
    assert not wrong
    assert tried > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_the_key_stays_the_content_stays_in_200_projects(tmp_path: Path) -> None:
    tried, wrong = search(tmp_path, range(200), key_of)
    assert not wrong
    assert tried > 2500


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("f(3)", lambda ref: digest("oracle", closure(ref).texts[-1:])),  # of one file
        (
            "f.__doc__",
            lambda ref: digest("oracle", [read_source(str(file)).syntax for _, file in closure(ref).modules]),
        ),
    ],
)
def test_the_oracle_finds_keys_that_are_too_small(tmp_path: Path, value: str, key: Key) -> None:
    modules = {
        "start.py": f"from .b import f\ndef go():\n    return {value}\n",
        "b.py": 'def f(x=1):\n    """Doc."""\n    return x * 2\n',
        "z.py": "",
    }
    wrong = [name for name, _ in violations(tmp_path, modules, key) if name]
    assert "b.py" in wrong
    assert not [name for name, _ in violations(tmp_path, modules, key_of) if name]
