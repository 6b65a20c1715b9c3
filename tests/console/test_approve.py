"""`approve`: a node waits for a person, who answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.pipelines import Home, RunResult, decide, load_pipeline, open_run, resume, run_pipeline, waiting_tasks
from drivetrain.pipelines.ir.ir import Pipeline
from drivetrain.pipelines.launcher.decisions import decision
from drivetrain.tests.console.spans import ASKING
from drivetrain.tests.pipelines.faulty import waits

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that wait for a person."""
    monkeypatch.setattr("drivetrain.components.approval._POLL", 0.02)


@pytest.mark.parametrize("deny", [False, True])
def test_a_person_decides_while_the_node_waits(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch, deny: bool
) -> None:
    folder = project("asking", pipeline=ASKING)
    monkeypatch.chdir(folder.parent)
    home = Home(Path(".drivetrain"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run_pipeline(home, load_pipeline(folder))))
    thread.start()
    waits(lambda: last_json(drivetrain("approve", "--list", "--json"))["waiting"])
    (asked,) = last_json(drivetrain("approve", "--list", "--json"))["waiting"]
    assert (asked["node"], asked["message"]) == ("Approval", "Push it?")
    said = drivetrain("approve", *(["--deny"] if deny else []), "--by", "ada", "--comment", "looked at it")
    assert said.exit_code == 0, said.output
    thread.join(120)
    (result,) = found
    decision = result.nodes["Approval"].outputs["decision"][0].properties
    assert decision == {"approved": not deny, "by": "ada", "comment": "looked at it"}
    assert result.nodes["Double"].state == ("SKIPPED" if deny else "COMPLETE")
    assert result.nodes["Denied"].state == ("COMPLETE" if deny else "SKIPPED")
    twice = drivetrain("approve", result.run, "Approval")
    assert twice.exit_code == 2
    assert "was denied by ada before" in twice.stderr if deny else "was approved by ada before" in twice.stderr
    home.close()


def test_nobody_answers_in_time_and_then_somebody_does(
    project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.components.approval._POLL", 3600.0)  # it looks no longer than it waits
    home = Home(tmp_path / ".drivetrain")
    first = run_pipeline(home, load_pipeline(project("asking", pipeline=ASKING)), {"wait": 0.1})
    assert first.nodes["Approval"].state == "FAILED"
    assert "nobody answered 'Push it?' within 0.1 s" in first.nodes["Approval"].reason
    run = next(iter([first.run]))
    from drivetrain.pipelines import open_run

    assert waiting_tasks(home, open_run(home, run)) == []
    decide(home, open_run(home, run), "Approval", approved=True, by="ada")
    again = resume(home)
    assert again.state == "COMPLETE"
    # Another run asks anew: an earlier yes is not one for what this run made.
    assert run_pipeline(home, load_pipeline(project("asking", pipeline=ASKING)), {"wait": 0.1}).state == "FAILED"
    home.close()


ASKED = """
    import time
    import drivetrain as dt
    from drivetrain.pipelines import current

    @dt.component(asks=True, deterministic=False)
    def Review(*, item: int) -> bool:
        while (said := current().decision()) is None:
            current().progress(0, None, "")
            time.sleep(0.05)
        return said["approved"]

    @dt.component
    def Approval(*, item: int) -> int:
        while not (current().base / "go").exists():
            time.sleep(0.05)
        return item

    @dt.pipeline
    def asked() -> None:
        Approval(item=3)
        dt.map_(lambda item: Review.options(id="Ask", priority=1)(item=item), over=[7, 8])
"""


def test_any_component_may_ask_by_whatever_name(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("asked", pipeline=ASKED)
    monkeypatch.chdir(folder.parent)
    pipeline = load_pipeline(folder)
    assert {node["id"]: node.get("asks") for node in json.loads(pipeline.build().to_json())["nodes"]} == {
        "Approval": None,  # unsaid: the compiled form of what asks nobody is as it was
        "Ask": True,
    }
    assert Pipeline.from_json(pipeline.build().to_json()) == pipeline.build()
    home = Home(Path(".drivetrain"))
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run_pipeline(home, pipeline)))
    thread.start()

    def waiting() -> list[str]:
        return [one["node"] for one in last_json(drivetrain("approve", "--list", "--json"))["waiting"]]

    waits(lambda: waiting() == ["Ask[0]", "Ask[1]"])
    run = open_run(home, None).id
    assert waiting_tasks(home, open_run(home, run)) == ["Ask[0]", "Ask[1]"]
    nobody, which = drivetrain("approve", run, "Approval"), drivetrain("approve", run, "Ask")
    assert "fix: name one that does: Ask" in nobody.stderr
    assert "fix: name e.g. Ask[0]" in which.stderr
    assert drivetrain("approve", run, "Ask[1]", "--deny", "--by", "ada").exit_code == 0
    waits(lambda: waiting() == ["Ask[0]"])
    assert drivetrain("approve", "--by", "ada").exit_code == 0
    Path("go").touch()
    thread.join(120)
    (result,) = found
    said = {name: node.outputs["value"][0].properties["value"] for name, node in result.nodes.items()}
    assert said == {"Approval": 3, "Ask[0]": True, "Ask[1]": False}
    home.close()


def test_each_of_two_runs_at_once_asks_for_itself(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the question is the same, and nobody has answered the first one yet; nor do equal items wait."""
    folder = project("asking", pipeline=ASKING)
    monkeypatch.chdir(folder.parent)
    pipeline = load_pipeline(folder)
    Home(Path(".drivetrain")).close()  # who asks what waits finds a store, if he is the first
    threads = [
        threading.Thread(target=lambda: found.append(run_pipeline(Home(Path(".drivetrain")), pipeline)), daemon=True)
        for _ in range(2)
    ]
    found: list[RunResult] = []
    for thread in threads:
        thread.start()

    def waiting() -> list[str]:
        return sorted(one["run"] for one in last_json(drivetrain("approve", "--list", "--json"))["waiting"])

    waits(lambda: len(waiting()) == 2)
    older, newer = waiting()
    assert drivetrain("approve", newer, "Approval", "--by", "ada").exit_code == 0
    waits(lambda: len(found) == 1)
    assert drivetrain("approve", older, "Approval", "--deny", "--by", "ada").exit_code == 0
    for thread in threads:
        thread.join(120)
    said = {result.run: result.nodes["Approval"].outputs["decision"][0].properties["approved"] for result in found}
    assert said == {newer: True, older: False}


def test_answers_to_nothing(spans: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "spans").exit_code == 0
    assert "nothing waits" in drivetrain("approve").stderr
    assert json.loads(drivetrain("approve", "--list", "--json").stdout) == {"waiting": []}


def test_a_user_without_a_name_says_who_decides(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("asking", pipeline=ASKING).parent)
    drivetrain("run", "asking", "--param", "wait=0.1")
    run = str(json.loads(drivetrain("runs", "--json").stdout)["runs"][0]["run"])

    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    refused = drivetrain("approve", run, "Approval")
    assert refused.exit_code == 2
    assert "fix: say who decides: --by NAME" in refused.stderr
    assert "Read asks nobody" in drivetrain("approve", run, "Read", "--by", "ada").stderr
    assert drivetrain("approve", run, "Approval", "--by", "ada").exit_code == 0


SEVERAL = """
    import drivetrain as dt
    from drivetrain.components import Approval

    @dt.component
    def Note(*, text: str) -> str:
        return text

    @dt.pipeline
    def asking(wait: float = 30.0, needed: int = 2, days: float = 0.0) -> None:
        asked = Approval(
            message="Push it?", wait=wait, approvals=needed, approvers=["ada", "bob", "eve"], allow_own=False
        )
        with dt.when(asked.approved):
            Note(text="pushed")
"""


def test_two_of_three_decide_and_not_who_started_it(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("asking", pipeline=SEVERAL)
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("LOGNAME", "eve")
    home = Home(Path(".drivetrain"))
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(run_pipeline(home, load_pipeline(folder))))
    thread.start()
    waits(lambda: last_json(drivetrain("approve", "--list", "--json"))["waiting"])
    assert "eve made it" in drivetrain("approve").stderr  # the user of this shell, who started the run
    assert "zoe is not one of those who decide: ada, bob, eve" in drivetrain("approve", "--by", "zoe").stderr
    first = drivetrain("approve", "--by", "ada", "--comment", "fine")
    assert first.exit_code == 0
    assert "1 approval of 2 missing; approved by ada; may still approve: bob; not eve" in first.stdout
    assert "was approved by ada before" in drivetrain("approve", "--by", "ada").stderr
    (asked,) = last_json(drivetrain("approve", "--list", "--json"))["waiting"]
    assert [answer["by"] for answer in asked["answers"]] == ["ada"]
    assert "1 approval of 2 missing" in drivetrain("approve", "--list").stdout
    assert last_json(drivetrain("approve", "--by", "bob", "--comment", "too", "--json"))["decided"] is True
    thread.join(120)
    (result,) = results
    decision = result.nodes["Approval"].outputs["decision"][0].properties
    assert decision == {"approved": True, "by": "ada, bob", "comment": "ada: fine; bob: too"}
    assert result.nodes["Note"].state == "COMPLETE"
    assert "was approved by ada, bob before" in drivetrain("approve", result.run, "Approval", "--by", "bob").stderr
    home.close()


def test_one_who_denies_decides_alone(
    project: Callable[..., Path], drivetrain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("asking", pipeline=SEVERAL)
    monkeypatch.chdir(folder.parent)
    home = Home(Path(".drivetrain"))
    first = run_pipeline(home, load_pipeline(folder), {"wait": 0.1})
    run = open_run(home, first.run)
    assert decide(home, run, "Approval", approved=True, by="ada").approved is None
    assert decide(home, run, "Approval", approved=False, by="bob", comment="no").approved is False
    assert "was denied by bob before" in drivetrain("approve", run.id, "Approval", "--by", "eve").stderr
    again = resume(home)
    assert (again.nodes["Approval"].state, again.nodes["Note"].state) == ("COMPLETE", "SKIPPED")
    home.close()


def test_a_rule_that_nobody_meets_is_refused_before_anything_runs(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("asking", pipeline=SEVERAL).parent)
    refused = drivetrain("run", "asking", "--param", "needed=4")
    assert refused.exit_code == 2
    assert "4 approvals are needed, of 3 people" in refused.stderr + refused.stdout


def test_an_answer_before_its_time_expires(project: Callable[..., Path], tmp_path: Path) -> None:
    text = SEVERAL.replace("allow_own=False", "days=days").replace("days: float = 0.0", "days: float = 1e-6")
    home = Home(tmp_path / ".drivetrain")
    first = run_pipeline(home, load_pipeline(project("asking", pipeline=text)), {"wait": 0.1, "needed": 1})
    run = open_run(home, first.run)
    decide(home, run, "Approval", approved=True, by="ada")
    time.sleep(0.2)  # a day has 86,400 seconds, and a millionth of it is over
    assert decision(home, run, "Approval") is None
    assert decide(home, run, "Approval", approved=True, by="ada").approved is True  # may be given anew
    home.close()
