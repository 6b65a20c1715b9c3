"""`approve --list` says what is asked, in words that may be known only when it runs, and what is to be looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import Home, RunResult, load_pipeline, run_pipeline
from drivetrain.tests.pipelines.faulty import waits

ASKING = """
    import drivetrain as dt
    from drivetrain.components import Approval

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Make(*, count: int) -> Numbers:
        numbers = Numbers.new(total=count)
        (numbers.content / "total.txt").write_text(str(count))
        return numbers

    @dt.component
    def Words(numbers: Numbers) -> str:
        return f"push {numbers.total}?"

    @dt.pipeline
    def asking() -> None:
        def one(item):
            made = Make(count=item)
            return Approval(made, message=Words(made), wait=240.0).approved
        dt.map_(one, over=[7, 8])
"""


def test_what_waits_is_told_with_its_words_and_its_artifact(
    project: Callable[..., Path],
    drivetrain: Callable[..., Result],
    last_json: Callable[[Result], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = project("asking", pipeline=ASKING)
    monkeypatch.chdir(folder.parent)
    home = Home(Path(".drivetrain"))
    found: list[RunResult] = []
    thread = threading.Thread(target=lambda: found.append(run_pipeline(home, load_pipeline(folder))))
    thread.start()

    def waiting() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = last_json(drivetrain("approve", "--list", "--json"))["waiting"]
        return listed

    waits(lambda: len(waiting()) == 2)
    first, second = waiting()
    assert (first["node"], first["message"]) == ("Approval[0]", "push 7?")
    ((artifact,), (other,)) = first["artifacts"], second["artifacts"]
    assert (artifact["input"], artifact["type"]) == ("artifact", "Numbers")
    assert Path(artifact["place"], "content", "total.txt").read_text() == "7"
    assert Path(other["place"], "content", "total.txt").read_text() == "8"
    told = drivetrain("approve", "--list").stdout.splitlines()
    assert told[0] == f"drivetrain approve {first['run']} Approval[0]  push 7?"
    assert told[1] == f"  artifact: Numbers {artifact['place']}"
    for place in (0, 1):
        assert drivetrain("approve", first["run"], f"Approval[{place}]", "--by", "ada").exit_code == 0
    thread.join(240)
    assert found[0].state == "COMPLETE"
    assert drivetrain("approve", "--list").stdout == "nothing waits for a decision\n"
    home.close()
