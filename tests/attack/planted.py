"""An attack on a product with known faults: what looks for faults must find these."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from drivetrain.tests.attack.attack import Attack, Case


def _check(folder: Path, case: Case) -> None:
    match case:
        case [["die"]]:
            os.kill(os.getpid(), signal.SIGSEGV)
        case [["hang"]]:
            time.sleep(60)


ATTACKS = {"planted": Attack(lambda folder: folder, lambda dice: [[dice.choice(("die", "hang"))]], _check, seconds=3)}
