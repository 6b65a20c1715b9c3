"""Workers: the same rows in the same order as without, exact states, and one clear error where a process dies."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain.engine.training.input import Dataset, from_arrays
from drivetrain.engine.training.input.maps import Mapped
from drivetrain.engine.training.input.workers import _InputWorker
from drivetrain.errors import InputError
from drivetrain.tests.living import lives
from drivetrain.tests.pipelines.faulty import waits

from .test_dataset import everything

MODULE = '''
"""What a user's module may hold."""
import os
import signal
import sys
from dataclasses import dataclass

import numpy as np


def tripled(columns):
    print("this goes to the log")
    return {**columns, "tripled": columns["row"] * 3, "process": np.full(len(columns["row"]), os.getpid())}


def with_libraries(row):
    return {"libraries": ", ".join(sorted(sys.modules.keys() & {"jax", "pandas", "pyarrow"}))}


def noisy(columns, random):
    return {**columns, "noise": random.random(len(columns["row"]))}


def upper(row):
    return {"text": row["text"].upper(), "ids": row["ids"][::-1], "raw": row["raw"] * 2}


@dataclass(frozen=True)
class Added:
    number: int

    def __call__(self, columns):
        return {"row": columns["row"] + self.number}


def killed(columns):
    if columns["row"][0] >= 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return columns


def broken(columns):
    if columns["row"][0] >= 40:
        raise KeyError("no such thing")
    return columns


def hanging(columns):
    while True:
        signal.pause()


def hanging_late(columns):
    if columns["row"][0] >= 20:
        open(os.environ["HANGING"], "w").close()
        hanging(columns)
    return columns
'''


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A user's module, on the path as a project's are."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "input_functions.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("input_functions")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("input_functions", None)


def rows() -> Dataset:
    number = np.arange(200)
    return from_arrays({
        "row": number,
        "text": [f"row {each} ü" for each in number],
        "raw": [bytes([each]) * (each % 4) for each in number],
        "ids": [np.arange(each % 5) for each in number],
    })  # fmt: skip


def test_workers_give_what_this_process_gives(users: Any) -> None:
    for options in (
        {"fn": users.noisy, "seed": 3},
        {"fn": users.upper, "by_row": True},
        {"fn": users.Added(7)},
    ):
        alone = everything(rows().batch(20).map(**options))
        assert everything(rows().batch(20).map(**options, workers=1)) == alone
    processes = {
        pid for batch in everything(rows().batch(20).map(users.tripled, workers=2)) for pid in batch["process"]
    }
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_worker_imports_no_large_library_by_itself(users: Any) -> None:
    """There are many of them, and each would take the memory and the time."""
    (block,) = everything(rows().batch(200).map(users.with_libraries, by_row=True, workers=1))
    assert set(block["libraries"]) == {""}


def test_any_state_with_workers_gives_the_same_rest(users: Any) -> None:
    def build(workers: int) -> Dataset:
        shuffled = rows().shuffle(1).select("row").batch(20).map(users.noisy, seed=5, workers=workers)
        return shuffled.repeat(2).prefetch(2)

    iterator = build(2).iterator()
    states, elements = [iterator.state()], []
    for element in iterator:
        elements.append({name: column.tolist() for name, column in element.items()})
        states.append(iterator.state())
    assert len(elements) == 20
    assert everything(build(2), states[13]) == elements[13:]
    assert all(everything(build(0), state) == elements[number:] for number, state in enumerate(states))


def test_a_worker_that_dies_is_one_error(users: Any) -> None:
    iterator = iter(rows().batch(20).map(users.killed, workers=2).prefetch(1))
    assert [next(iterator)["row"][0] for _ in range(2)] == [0, 20]
    message = r"map\(killed\): a worker ended at rows 40 to 59 of epoch 1: signal 9\n.*workers=0"
    with pytest.raises(InputError, match=message):
        next(iterator)


def test_what_the_function_raises_in_a_worker_is_the_same_error(users: Any) -> None:
    messages = []
    for workers in (0, 2):
        with pytest.raises(InputError, match=r"map\(broken\) failed at rows 40 to 59 of epoch 1") as caught:
            everything(rows().batch(20).map(users.broken, workers=workers))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "input_functions.py" in messages[0]


def test_no_process_is_left(users: Any) -> None:
    import psutil

    def children() -> int:
        return sum("worker_main" in " ".join(child.cmdline()) for child in psutil.Process().children())

    iterator = rows().batch(20).map(users.tripled, workers=2).prefetch(1).iterator()
    next(iterator)
    assert children() == 2
    iterator.close()
    assert children() == 0


def test_workers_end_with_the_process_that_asks(users: Any, tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import os, signal, sys\n"
        "from input_functions import tripled\n"
        "from drivetrain.engine.training.input import from_arrays\n"
        "rows = iter(from_arrays({'row': list(range(90))}).batch(10).map(tripled, workers=2))\n"
        "print({int(next(rows)['process'][0]) for _ in range(6)}, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    asked = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    processes = {int(number) for number in re.findall(r"\d+", asked.stdout)}
    assert processes
    waits(lambda: not any(map(lives, processes)))


@dataclass(frozen=True)
class Held:
    values: Any

    def __call__(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return columns


def test_functions_that_no_worker_can_get_are_refused() -> None:
    def inner(columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return columns

    for fn, message in (
        (inner, "not a function at the top level"),
        (lambda columns: columns, "not a function at the top level"),
        (Held(np.zeros(2)), "the fields of Held are no JSON values"),
    ):
        with pytest.raises(InputError, match=rf"cannot run in workers: .*{message}"):
            rows().map(fn, workers=2)


def test_a_function_of_a_project_is_taken_with_what_it_imports(tmp_path: Path) -> None:
    from drivetrain.pipelines.project.functions import FunctionRef

    (tmp_path / "factors.py").write_text("FACTOR = 3\n")
    (tmp_path / "steps.py").write_text(
        "from .factors import FACTOR\n\n\ndef times(columns):\n    return {'row': columns['row'] * FACTOR}\n"
    )
    times = FunctionRef(tmp_path, "steps:times").load()
    batches = everything(rows().batch(50).map(times, workers=1))
    assert [row for batch in batches for row in batch["row"]] == [3 * row for row in range(200)]


def test_a_worker_that_reads_nothing_can_be_ended() -> None:
    """Whoever writes to it holds the file until it is dead."""
    block = {"row": np.arange(1_000_000)}
    worker = _InputWorker(Mapped(from_arrays(block), dict))
    os.kill(worker._process.pid, signal.SIGSTOP)
    errors: list[str] = []

    def ask() -> None:
        with pytest.raises(InputError) as raised:
            worker.ask(block, 0, 0)
        errors.append(raised.value.message)

    thread = threading.Thread(target=ask)
    thread.start()
    waiting = bytearray(4)
    while int.from_bytes(waiting, sys.byteorder) < 16_384:  # bytes in the pipe, which never holds all
        fcntl.ioctl(worker._to.fileno(), termios.FIONREAD, waiting)
        time.sleep(0.01)
    worker.close()
    thread.join()
    assert "a worker ended at rows 0 to 999999 of epoch 1: signal 9" in errors[0]


def test_a_worker_that_takes_too_long_is_ended(users: Any) -> None:
    """The timeout is for ever, for who waits; an instant, for a function that never returns."""
    assert everything(rows().batch(20).map(users.Added(7), workers=1, timeout=3600.0))
    message = (
        r"map\(hanging\): a worker gave nothing within 0\.01 s at rows 0 to 19 of epoch 1, and was ended\n.*timeout"
    )
    with pytest.raises(InputError, match=message):
        everything(rows().batch(20).map(users.hanging, workers=1, timeout=0.01))
    with pytest.raises(InputError, match=r"map\(hanging\) has a timeout and no workers"):
        rows().map(users.hanging, timeout=1.0)
    with pytest.raises(InputError, match=r"map\(hanging\) with a timeout of 0"):
        rows().map(users.hanging, workers=1, timeout=0)


@pytest.mark.parametrize("last", ["batch", "repeat", "prefetch"])
def test_an_iterator_is_closed_while_a_worker_hangs(
    users: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """What came of the pass is not kept for all of it."""
    monkeypatch.setenv("HANGING", str(tmp_path / "hanging"))
    kept = rows().batch(20).map(users.hanging_late, workers=1).prefetch(2).cache(tmp_path / "cache")
    steps = {"batch": kept.batch(10), "repeat": kept.repeat(), "prefetch": kept.prefetch(1)}
    iterator = steps[last].prefetch(1).iterator()
    while not (tmp_path / "hanging").exists():
        time.sleep(0.01)
    iterator.close()
    assert not (tmp_path / "cache").exists()
