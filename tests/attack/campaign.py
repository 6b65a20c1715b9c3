"""Draw cases, have workers carry them out, and make what is found small."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import IO

from drivetrain.tests.attack.attack import Attack, Case, attack

Outcome = tuple[str, str, str]
STARTING = 300.0  # seconds: what is attacked is made first, by a run, or by training
SMALLER = 90.0  # seconds that are spent on making a case smaller


@dataclass(frozen=True)
class Report:
    """Something that was found.

    Attributes:
        attack: By which attack.
        number: Of the case that found it.
        kind: Equal for findings that are probably the same.
        details: The traceback, or what came out.
        case: The steps that are needed.
    """

    attack: str
    number: int
    kind: str
    details: str
    case: Case


def drawn(name: str, seed: str, number: int) -> Case:
    """The case of that number; equal for equal seeds, whatever ran before. As JSON gives it back."""
    case: Case = json.loads(json.dumps(attack(name).draw(Random(f"{seed}/{name}/{number}"))))
    return case


class Worker:
    """A worker of an attack; one that died or hung is started anew by the next case.

    Args:
        name: The attack.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._limits: Attack = attack(name)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def carry_out(self, case: Case) -> Outcome:
        """The outcome of a case, also where it ends the worker."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(case).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer(self._limits.seconds)

    def close(self) -> None:
        """End the worker with all that it started, and remove its folder."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        assert self._errors is not None
        self._errors.close()
        self._process = None
        subprocess.run(["chmod", "-R", "u+rwX", self._folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="drivetrain-attack-"))
        work = self._folder / "work"
        work.mkdir()
        self._errors = (self._folder / "errors").open("w+b")
        environment = {
            **os.environ, "XDG_CACHE_HOME": str(self._folder / "cache"), "JAX_PLATFORMS": "cpu",
            "DRIVETRAIN_DEBUG": "1", "TMPDIR": str(self._folder), "DRIVETRAIN_ROOT": str(work / ".drivetrain"),
            "PYTHONFAULTHANDLER": "1",
            "GX_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1",
        }  # fmt: skip
        (self._folder / "cache").mkdir(mode=0o700)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "drivetrain.tests.attack.worker", self._name, str(work)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, cwd=work,
            start_new_session=True,
        )  # fmt: skip
        ready = self._answer(STARTING)
        if ready[0] != "works":
            raise RuntimeError(f"without an attack {self._name} does not work: {ready[1]}\n{ready[2]}")

    def _answer(self, seconds: float) -> Outcome:
        assert self._process is not None
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(end - time.monotonic(), 0.0)):
                    return self._ended(f"hangs: no answer in {seconds:.0f} s")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    return self._ended(_death(self._process.wait()))
                line += data
        outcome, kind, details = json.loads(line)
        return outcome, kind, details

    def _ended(self, kind: str) -> Outcome:
        """What a case did that the worker did not survive."""
        assert self._process is not None
        if kind.startswith("hangs") and self._process.poll() is None:
            self._process.send_signal(signal.SIGABRT)  # faulthandler tells where it stands
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        assert self._errors is not None
        self._errors.seek(0)
        details = self._errors.read()[-4000:].decode("utf-8", "replace")
        self.close()
        return "finding", kind, details


def _death(code: int) -> str:
    return f"ends the process ({signal.Signals(-code).name if code < 0 else f'exit {code}'})"


def smaller(worker: Worker, case: Case, kind: str) -> Case:
    """The steps that are needed for a finding: delta debugging (Zeller and Hildebrandt, 2002), by complements."""
    parts, end = 2, time.monotonic() + SMALLER
    while len(case) > 1 and time.monotonic() < end:
        size = -(-len(case) // parts)
        for start in range(0, len(case), size):
            rest = case[:start] + case[start + size :]
            if worker.carry_out(rest)[1] == kind:
                case, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(case))
    return case


def campaign(
    name: str,
    seed: str,
    numbers: Iterator[int],
    over: Callable[[], bool] = lambda: False,
    known: set[tuple[str, str]] | None = None,
) -> Iterator[Outcome | Report]:
    """Carry cases out: their outcomes, and a report, made small, of each kind of finding that is new.

    Args:
        name: The attack.
        seed: What the cases are drawn from.
        numbers: Of the cases.
        over: Asked before each case.
        known: Findings, as (attack, kind), that are not reported again; added to.
    """
    known = set() if known is None else known
    with Worker(name) as worker:
        for number in numbers:
            if over():
                return
            case = drawn(name, seed, number)
            outcome = worker.carry_out(case)
            yield outcome
            if outcome[0] == "finding" and (name, outcome[1]) not in known:
                known.add((name, outcome[1]))
                small = smaller(worker, case, outcome[1])
                yield Report(name, number, outcome[1], outcome[2], small)
