"""`resume`: what ended well stays, the rest runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_resume_keeps_what_ended_well_and_runs_the_rest(shop: Path, drivetrain: Command, last_json: Read) -> None:
    failed = last_json(drivetrain("run", "shop", "--param", "fail=crash", "--json"))
    source = (shop / "pipeline.py").read_text()
    (shop / "pipeline.py").write_text(source.replace('raise ValueError("boom [in here]")', "pass"))
    # The code is part of what was built: an edited node is refused, not run as something else.
    refused = drivetrain("resume")
    assert refused.exit_code == 2
    assert "edited after the pipeline was built" in refused.stdout
    (shop / "pipeline.py").write_text(source)
    again = drivetrain("resume", failed["run"], "--json")
    assert again.exit_code == 2
    answer = last_json(again)
    assert answer["run"] == failed["run"]
    for key in ("state", "reason", "outputs"):
        assert answer["nodes"]["Make"][key] == failed["nodes"]["Make"][key]


def test_a_complete_run_has_nothing_to_resume(shop: Path, drivetrain: Command, last_json: Read) -> None:
    run = last_json(drivetrain("run", "shop", "--json"))["run"]
    again = drivetrain("resume", "--json")
    assert (again.exit_code, last_json(again)["state"]) == (0, "COMPLETE")
    assert f"run {run} is complete: there is nothing to resume" in again.stderr


def test_a_stopped_run_that_is_resumed_says_who_reads_mended_data(shop: Path, drivetrain: Command) -> None:
    said = "A resumed run keeps the data that it read"
    assert said not in drivetrain("run", "shop", "--param", "limit=2").stdout
    again = drivetrain("resume")
    assert again.exit_code == 3
    assert f"{said}: what was mended since, only `drivetrain run` reads." in " ".join(again.stdout.split())
