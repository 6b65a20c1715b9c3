"""Attack with new seeds for as long as is wanted: `python -m drivetrain.tests.attack --minutes 30`.

Prints the seed first (`--seed` repeats it), then each finding as it comes, and at the end how many cases each attack
tried. Each finding is written to a folder with the steps that are needed; `--repeat FILE` carries one out again. Exits
with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import itertools
import json
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from drivetrain.tests.attack.attack import ATTACKS
from drivetrain.tests.attack.campaign import Report, Worker, campaign

SLICE = 30.0  # seconds of an attack before the next has its turn


def main() -> int:
    """Attack, or repeat a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", help=f"which; all of them where none is named: {', '.join(ATTACKS)}")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", default=None, help="repeats the cases of an earlier attack")
    parser.add_argument("--jobs", type=int, default=2, help="attacks at a time")
    parser.add_argument("--out", type=Path, help="folder of findings; a new one in the temporary folder otherwise")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="carry out what is written in a finding's file")
    options = parser.parse_args()
    if options.repeat is not None:
        return repeat(options.repeat)
    if unknown := set(options.attacks) - ATTACKS.keys():
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    seed = options.seed or secrets.token_hex(8)
    out = options.out or Path(tempfile.mkdtemp(prefix="drivetrain-findings-"))
    print(f"seed {seed}, findings go to {out}", flush=True)
    counts = attack_for(60 * options.minutes, options.attacks or list(ATTACKS), seed, out, options.jobs)
    for name, count in counts.items():
        print(f"{name:12} {count.total():7,} cases: {', '.join(f'{n:,} {what}' for what, n in sorted(count.items()))}")
    findings = sum(count["finding"] for count in counts.values())
    print(f"{findings:,} findings: make attack SEED={seed}" if findings else "nothing found")
    return 1 if findings else 0


def repeat(file: Path) -> int:
    """Carry out the case of a finding."""
    body = json.loads(file.read_text("utf-8"))
    with Worker(body["attack"]) as worker:
        outcome, kind, details = worker.carry_out(body["case"])
    print(f"{outcome} {kind}\n{details}")
    return 1 if outcome == "finding" else 0


def attack_for(seconds: float, names: list[str], seed: str, out: Path, jobs: int) -> dict[str, Counter[str]]:
    """Take turns among the attacks until the time is over; gives the outcomes of each."""
    end = time.monotonic() + seconds
    counts = {name: Counter[str]() for name in names}
    numbers = {name: itertools.count() for name in names}
    known: set[tuple[str, str]] = set()
    turns, lock = itertools.cycle(names), threading.Lock()
    busy: set[str] = set()

    def turn() -> None:
        while time.monotonic() < end:
            with lock:
                name = next(each for each in turns if each not in busy)
                busy.add(name)
            stop = min(end, time.monotonic() + max(SLICE, seconds / len(names) / 4))
            for result in campaign(name, seed, numbers[name], lambda stop=stop: time.monotonic() >= stop, known):  # type: ignore[misc]
                if isinstance(result, Report):
                    write(result, seed, out)
                else:
                    counts[name][result[0]] += 1
            with lock:
                busy.remove(name)

    jobs = min(jobs, len(names))
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(turn) for _ in range(jobs)]:
            future.result()
    return counts


def write(report: Report, seed: str, out: Path) -> None:
    """Keep a finding, and say so."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{report.attack}-{report.number}.json"
    file.write_text(json.dumps({**asdict(report), "seed": seed}, indent=1), encoding="utf-8")
    steps = json.dumps(report.case)
    print(f"FOUND {report.attack} {report.number}: {report.kind}\n  {steps:.300}\n  {file}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
