"""The protocol of all attacks: what is attacked, a case drawn from a seed, and what must hold of each case.

A case is a list of steps, each plain JSON, so that it can be written down, repeated and made smaller. A step that means
nothing once others are left out does nothing.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
from drivetrain.errors import DrivetrainError

Case = list[list[Any]]


class Finding(Exception):
    """Something that must not be, though nothing crashed: a changed payload was read, a secret came out."""


@dataclass(frozen=True)
class Attack:
    """One way to do harm.

    Attributes:
        prepare: Makes what is attacked in an empty folder, once for each worker; gives what `check` needs.
        draw: A case; equal for equal seeds.
        check: Carries a case out. It raises a `Finding`, or what the product raises. A `DrivetrainError` or an error of
            click's is a refusal, which is an answer; every other exception is a finding.
        fast: How many cases of the fixed seed run with the fast tests.
        slow: How many run with the slow ones.
        seconds: Of wall time, after which a case hangs.
        gibibytes: Of address space, beyond which a case is a memory bomb; None where the attack starts processes that
            map more.
    """

    prepare: Callable[[Path], Any]
    draw: Callable[[Random], Case]
    check: Callable[[Any, Case], None]
    fast: int = 0
    slow: int = 0
    seconds: float = 60.0
    gibibytes: int | None = 8


ATTACKS: dict[str, str] = {
    # name -> module: a worker imports only what its own attack needs
    "schema": "documents",
    "suite": "documents",
    "pbtxt": "documents",
    "cluster": "documents",
    "component": "documents",
    "parameters": "documents",
    "pipeline": "documents",
    "data": "data_files",
    "mlmd": "mlmd_files",
    "database": "databases",
    "payload": "payloads",
    "hostile": "components",
    "kill": "interruptions",
    "disk": "interruptions",
    "bundle": "bundles",
    "program": "bundles",
    "url": "urls",
    "terminal": "terminal_texts",
}


def attack(name: str) -> Attack:
    """The attack of that name."""
    chosen = importlib.import_module(f"drivetrain.tests.attack.{ATTACKS.get(name, name)}").ATTACKS[name]
    assert isinstance(chosen, Attack)
    return chosen


def outcome(chosen: Attack, target: Any, case: Case) -> tuple[str, str, str]:
    """Carry a case out: ("works" or "refused" or "finding", what kind of finding, its details)."""
    try:
        chosen.check(target, case)
    except (DrivetrainError, click.ClickException) as error:
        return "refused", "", f"{type(error).__name__}: {error}"
    except Finding as finding:
        return "finding", str(finding).partition("\n")[0], str(finding)
    except BaseException as error:  # an attack may raise anything: that is what it is for
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/attack/" not in frame.filename and "/drivetrain/" in frame.filename]
        at = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "the attack itself"
        return "finding", f"{type(error).__name__} at {at}", "".join(traceback.format_exception(error))[-4000:]
    return "works", "", ""
