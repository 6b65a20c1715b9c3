"""The process that carries cases out: what is looked for may end it, hang it or eat the memory.

    python -m drivetrain.tests.attack.worker ATTACK FOLDER

Reads a case per line from standard input, and answers each with a line of JSON: [outcome, kind, details]. The first
answer, which nobody asks for, is that of a case without steps.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

from drivetrain.tests.attack.attack import attack, outcome

GIB = 1 << 30
FILE_BYTES = 2 * GIB


def main(name: str, folder: Path) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(folder / "printed", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)  # what the product prints
    warnings.simplefilter("ignore")
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    socket.socket.connect = _only_here  # type: ignore[assignment,method-assign]
    chosen = attack(name)
    target = chosen.prepare(folder)
    if chosen.gibibytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (chosen.gibibytes * GIB, chosen.gibibytes * GIB))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(outcome(chosen, target, [])), file=answers, flush=True)  # what is honest must work
    for line in sys.stdin:
        print(json.dumps(outcome(chosen, target, json.loads(line))), file=answers, flush=True)


def _only_here(self: socket.socket, address: Any) -> None:
    raise ConnectionRefusedError(f"attacks connect to nothing: {address}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
