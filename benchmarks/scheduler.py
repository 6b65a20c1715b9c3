"""What the scheduler costs while nothing is due: the share of a core for 1,000 schedules at its poll of 5 seconds.

    python benchmarks/scheduler.py [--schedules 1000] [--repeat 20]

The reference is a reader of the same records in the same run, which parses each and asks nothing: `json.loads`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from drivetrain.benchmarks.common import Bars, report, timed
from drivetrain.pipelines import Home
from drivetrain.pipelines.dsl.pipeline import load_pipelines
from drivetrain.pipelines.scheduler import Scheduler, register_schedule

POLL: Final = timedelta(seconds=5)
BARS: Bars = {"1,000 schedules looked at every 5 s: share of a core": (0.02, True)}
PIPELINES: Final = """
import drivetrain as dt
from drivetrain import triggers as on

@dt.component
def Make() -> int:
    return 1
"""
TRIGGERS: Final = (
    'on.Cron("0 3 * * *", tz="Europe/Oslo")',
    'on.Every("1d")',
    'on.NewArtifact("Model", pipeline="shop")',
    'on.After("shop")',
    "on.Drift()",
    'on.MetricDrop("auc", below=0.7)',
    'on.Cron("0 3 * * *") & on.NewArtifact("Model").debounce("10m")',
)


def project(folder: Path, count: int) -> Path:
    """A project with so many pipelines, which have the triggers in turn."""
    folder.mkdir()
    pipelines = [
        f"@dt.pipeline(schedule={TRIGGERS[number % len(TRIGGERS)]})\ndef p{number}() -> None:\n    Make()\n"
        for number in range(count)
    ]
    (folder / "pipeline.py").write_text("\n\n".join([PIPELINES, *pipelines]))
    return folder


def measure(folder: Path, count: int, repeat: int) -> dict[str, float]:
    """All figures."""
    home = Home(folder / ".drivetrain")
    for pipeline in load_pipelines(project(folder / "shop", count)).values():
        register_schedule(home, pipeline)
    now = datetime.now(UTC)
    scheduler = Scheduler(home, clock=lambda: now)
    first, _ = timed(scheduler.look)
    looks, reads = [], []
    for _ in range(repeat):
        now += POLL
        looks.append(timed(scheduler.look)[0])
        texts = [json.dumps(context.properties) for context in home.store.contexts("schedule", limit=None)]
        reads.append(timed(lambda texts=texts: [json.loads(text) for text in texts])[0])  # type: ignore[misc]
    home.close()
    look = statistics.median(looks)
    return {
        "first look: CPU s": first,
        "a look at which nothing is due: CPU ms": look * 1e3,
        "a look / json.loads of its records": look / statistics.median(reads),
        f"{count:,} schedules looked at every 5 s: share of a core": look / POLL.total_seconds(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drivetrain-scheduler-") as folder:
        report("scheduler", measure(Path(folder), arguments.schedules, arguments.repeat), BARS)


if __name__ == "__main__":
    main()
