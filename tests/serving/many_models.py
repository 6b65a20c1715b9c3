"""More models than memory in a server: `python -m drivetrain.tests.serving.many_models [--models 200 --room 50]`.

Each model has weights of its own, of 10 MB. Clients ask them at random, some far more often than others, and compare
every answer with NumPy's. Printed are the wrong answers, and how far the process's memory rose above that of a server
whose one model is tiny.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from drivetrain.components.pusher import push
from drivetrain.serving.client import Client
from drivetrain.tests.serving.bundles import rows_of, weights, write_network
from drivetrain.tests.serving.running import RunningServer, serving

HIDDEN = 1600
ROWS = [row["x"] for row in rows_of(7, 16).to_pylist()]


def scores(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What the network of a seed says of `ROWS`."""
    matrices = [*weights(seed, HIDDEN).values()]
    hidden = np.tanh(np.tanh(np.array(ROWS, np.float32) @ matrices[0]) @ matrices[1])
    answer: np.ndarray[tuple[int], np.dtype[np.float64]] = 1 / (1 + np.exp(-(hidden @ matrices[2])[:, 0].astype(float)))
    return answer


@dataclass
class MemoryReport:
    """What was seen.

    Attributes:
        budget: Bytes that the models in memory may take.
        empty: Bytes of the process of the server with a tiny model, after a request.
        highest: The most bytes of the server's process.
        answers: How many were right, by model.
        wrong: What was answered else.
        seconds: How long each answer took.
    """

    budget: int
    empty: int
    highest: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Memory above the empty server's by the budget."""
        return (self.highest - self.empty) / self.budget


def resident(server: RunningServer) -> int:
    """Bytes of the server's process."""
    return int(psutil.Process(server.process.pid).memory_info().rss)


def fill(folder: Path, models: int, room: int, seconds: float, clients: int, seed: int) -> MemoryReport:
    """Push the models, and ask them for some seconds."""
    names = {f"n{at}": at for at in range(models)}
    sizes = []
    for name, at in names.items():
        write_network(folder / "bundle" / name, at, hidden=HIDDEN)
        push(folder / "bundle" / name, folder / name)
        sizes.append((folder / name / "1" / "weights" / "model.safetensors").stat().st_size)
    assert min(sizes) >= 10_000_000
    write_network(folder / "bundle" / "tiny", 0, hidden=8)
    push(folder / "bundle" / "tiny", folder / "tiny")
    with serving(folder, "tiny") as server, Client(server.address, "tiny") as client:
        client.predict([{"x": ROWS[0]}])
        empty = resident(server)
    megabytes = -(-room * max(sizes) // 1_000_000)
    report = MemoryReport(megabytes * 1_000_000, empty)
    lines = [f"  {name}: {{base_path: {name}}}" for name in names]
    (folder / "models.yaml").write_text("\n".join(["models:", *lines]))
    expected = {at: scores(at) for at in names.values()}
    with serving(folder, "--config", "models.yaml", "--memory-mb", str(megabytes)) as server:
        end = time.monotonic() + seconds
        locked = threading.Lock()

        def ask(number: int) -> None:
            drawn = random.Random(f"{seed} {number}")
            while time.monotonic() < end:
                at = min(int(drawn.expovariate(3 / models)), drawn.randrange(models) + models // 8, models - 1)
                rows = [drawn.randrange(len(ROWS)) for _ in range(drawn.choice((1, 1, 4)))]
                start = time.monotonic()
                try:
                    with Client(server.address, f"n{at}") as client:
                        answer = client.predict({"x": [ROWS[row] for row in rows]})
                    difference = np.abs(np.array(answer.outputs["score"]) - expected[at][rows]).max()
                    problem = "" if difference <= 1e-6 else f"n{at} differs by {difference}"
                except Exception as error:  # whatever it is, it is no answer
                    problem = f"n{at}: {error}"
                with locked:
                    report.seconds.append(time.monotonic() - start)
                    report.answers[at] += not problem
                    report.wrong += [problem] if problem else []

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            report.highest = max(report.highest, resident(server))
            time.sleep(0.01)
    return report


def main() -> None:
    """Print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--room", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        report = fill(Path(scratch), options.models, options.room, options.seconds, options.clients, options.seed)
    print(f"seed {options.seed}: {report.answers.total()} right answers of {len(+report.answers)} models")
    print(f"{len(report.wrong)} wrong: {report.wrong[:5]}")
    above = (report.highest - report.empty) / 1e6
    print(
        f"{above:.0f} MB above the empty server's {report.empty / 1e6:.0f} MB, budget {report.budget / 1e6:.0f} MB: "
        f"{report.ratio:.3f}"
    )
    print(f"median {np.median(report.seconds):.3f} s, longest {max(report.seconds):.2f} s")


if __name__ == "__main__":
    main()
