"""The ledger of benchmarks: what is recorded, and what is called worse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drivetrain.benchmarks import ledger

FOLDER = Path(ledger.__file__).parent


def runs(name: str, *values: float, yardsticks: tuple[float, ...] = ()) -> list[dict[str, Any]]:
    """Runs of one figure, on machines that took `yardsticks` seconds for the same work."""
    speeds = yardsticks or (1.0,) * len(values)
    return [{"yardstick": speed, "figures": {name: value}} for value, speed in zip(values, speeds, strict=True)]


@pytest.mark.parametrize(
    ("name", "values", "yardsticks", "share"),
    [
        ("cached: CPU s", (1.0, 1.1, 1.5), (), 1.5 / 1.05 - 1),
        ("cached: CPU s", (1.0, 1.1, 1.2), (), None),  # a seventh
        ("cached: CPU s", (1.0, 2.0), (1.0, 2.0), None),  # on a machine of half the speed
        ("cached: CPU s", (1.0, 1.0), (2.0, 1.0), 1.0),  # on one of twice the speed
        ("Trainer: M examples/s, all included", (2.0, 1.0), (1.0, 2.0), None),
        ("Trainer: M examples/s, all included", (2.0, 1.0), (), 1.0),
        ("ours / decode, CPU", (2.0, 3.0), (1.0, 9.0), 0.5),  # a ratio does not care
        ("graph / eager: times faster", (50.0, 25.0), (), 1.0),
        ("graph / eager: times faster", (25.0, 50.0), (), None),
        ("pyarrow decode: CPU s", (1.0, 9.0), (), None),  # a reference
        ("inline: ms a node", (9.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5), (), 0.5),  # the last five count
        ("inline: ms a node", (1.0,), (), None),  # nothing to compare with
    ],
)
def test_what_is_worse(
    name: str, values: tuple[float, ...], yardsticks: tuple[float, ...], share: float | None
) -> None:
    regressions = ledger.worse(runs(name, *values, yardsticks=yardsticks), allowed=0.2)
    assert [pytest.approx(figure.share) for figure in regressions] == ([] if share is None else [share])


def test_a_run_is_recorded_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    ledger.record("flights", {"cached: CPU s": 0.4, "log-loss, ours / regression": 0.938123456}, file)
    ledger.record("flights", {"cached: CPU s": 0.9, "log-loss, ours / regression": 0.938}, file)
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first["figures"]["log-loss, ours / regression"] == 0.93812
    assert {"date", "commit", "machine", "yardstick"} <= first.keys()
    assert 0 < second["yardstick"] < 60
    assert {"cpu", "cores", "python", "jax"} <= second["machine"].keys()
    command = [sys.executable, str(FOLDER / "ledger.py"), "--ledger", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.search(r"WORSE by \d+%: cached: CPU s: [\d.]+ -> 0.9\n", done.stdout)
    assert "log-loss" not in done.stdout
    assert subprocess.run([*command, "--allowed", "9"], capture_output=True, check=False).returncode == 0
    missing = subprocess.run([*command, "orchestra"], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (2, "no run of orchestra is recorded; run `make bench` first\n")


def test_a_figure_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing says what kind of figure 'frames' is"):
        ledger.record("flights", {"frames": 3}, tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


def bars(file: Path) -> list[str]:
    """The figures that a benchmark sets a bar for, by name."""
    text = file.read_text(encoding="utf-8").partition("\nBARS")[2].partition("\n}\n")[0]
    return re.findall(r'^    "(.+?)": \(', text, flags=re.M)


def test_a_bar_is_never_of_what_is_not_compared() -> None:
    names = [name for file in FOLDER.glob("*.py") for name in bars(file)]
    assert len(names) > 15
    assert [name for name in names if ledger.kind_of(name) is ledger.Kind.CONTEXT] == []


def test_what_is_recorded_has_kinds() -> None:
    lines = ledger.LEDGER.read_text(encoding="utf-8").splitlines() if ledger.LEDGER.exists() else []
    for line in lines:
        for name in json.loads(line)["figures"]:
            ledger.kind_of(name)
