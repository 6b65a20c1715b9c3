"""`rerun`, `spin`, `backfill`, `diff`, `approve`, and the ways to give a parameter."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.backfill import parse_spans
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, RunResult, decide, load_pipeline, open_run, resume, run_pipeline, waiting_tasks
from drivetrain.pipelines.ir.ir import Pipeline
from drivetrain.tests.pipelines.faulty import waits

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

SPANS = """
    import drivetrain as dt
    from drivetrain.components import Approval

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Read(*, span: int) -> Numbers:
        if span == 4:
            raise dt.InputError("span 4 is not there", fix="fetch it")
        numbers = Numbers.new(total=span)
        (numbers.content / "n").write_text(str(span))
        return numbers

    @dt.component
    def Double(numbers: Numbers, *, by: int) -> Numbers:
        return Read.fn(span=numbers.total * by + 1000)

    @dt.pipeline
    def spans(span: int = 1, by: int = 2) -> None:
        Double(Read(span=span), by=by)
"""
ASKING = (
    SPANS.partition("    @dt.pipeline")[0]
    + """
    @dt.pipeline
    def asking(wait: float | None = None) -> None:
        numbers = Read(span=1)
        with dt.when(Approval(numbers, message="Push it?", wait=wait).approved):
            Double(numbers, by=2)
        with dt.otherwise():
            Read.options(id="Denied")(span=2)
"""
)


@pytest.fixture
def spans(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project("spans", pipeline=SPANS)
    monkeypatch.chdir(folder.parent)
    return folder


def test_backfill_runs_each_span_once_and_finds_it_again(spans: Path, drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("backfill", "spans", "--spans", "3,1:2", "--json"))
    assert [(one["span"], one["state"], one["ran"]) for one in answer["spans"]] == [
        (span, "COMPLETE", ["Read", "Double"]) for span in (1, 2, 3)
    ]
    again = last_json(drivetrain("backfill", "spans", "--spans", "2:3", "--json"))
    assert [one["ran"] for one in again["spans"]] == [[], []]
    assert "span 1: COMPLETE  ran nothing; 2 cached" in drivetrain("backfill", "spans", "--spans", "1").stdout


def test_backfill_stops_at_what_fails_unless_told_to_go_on(spans: Path, drivetrain: Command, last_json: Read) -> None:
    stopped = drivetrain("backfill", "spans", "--spans", "3:5", "--json")
    assert stopped.exit_code == 2
    assert [one["span"] for one in last_json(stopped)["spans"]] == [3, 4]
    went_on = drivetrain("backfill", "spans", "--spans", "3:5", "--keep-going", "--json")
    assert went_on.exit_code == 2
    assert [one["state"] for one in last_json(went_on)["spans"]] == ["COMPLETE", "FAILED", "COMPLETE"]
    wrong = drivetrain("backfill", "spans", "--spans", "1", "--span-param", "by2")
    assert wrong.exit_code == 2
    assert "has no parameter 'by2'" in wrong.stderr


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("1:3", [1, 2, 3]),
        ("5", [5]),
        ("3,1:2,2", [1, 2, 3]),
        ("0", [0]),
        (" 7 : 8 ", [7, 8]),
        ("2017-01-01:2017-01-02", [17167, 17168]),
        ("1970-01-02, 3", [1, 3]),
    ],
)
def test_spans_as_text(text: str, spans: list[int]) -> None:
    assert parse_spans(text) == spans


@pytest.mark.parametrize("text", ["", "3:1", "a", "1:", "-1", "1,,2", "1:2:3", "2017-02-30", "2017-1-1"])
def test_text_that_names_no_spans(text: str) -> None:
    with pytest.raises(InputError, match="names no spans"):
        parse_spans(text)


def test_rerun_takes_the_runs_parameters_and_runs_from_a_node(
    spans: Path, drivetrain: Command, last_json: Read
) -> None:
    first = last_json(drivetrain("run", "spans", "--param", "span=7", "--json"))
    again = last_json(drivetrain("rerun", "--json"))
    assert {node["state"] for node in again["nodes"].values()} == {"CACHED"}
    assert again["nodes"]["Double"]["outputs"] == first["nodes"]["Double"]["outputs"]
    anew = last_json(drivetrain("rerun", first["run"], "--from", "Double", "--param", "by=3", "--json"))
    assert {name: node["state"] for name, node in anew["nodes"].items()} == {"Read": "CACHED", "Double": "COMPLETE"}
    assert anew["nodes"]["Read"]["reason"] == f"taken from run {first['run']}"


def test_spin_says_whether_the_content_is_the_same(spans: Path, drivetrain: Command, last_json: Read) -> None:
    run = last_json(drivetrain("run", "spans", "--json"))["run"]
    assert "numbers: as in the run" in drivetrain("spin", "Double").stdout
    pipeline = spans / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("+ 1000", "+ 2000"))
    answer = last_json(drivetrain("spin", "Double", "--run", run, "--json"))
    assert answer["outputs"]["numbers"]["same"] is False
    assert answer["outputs"]["numbers"]["properties"] == {"total": 2002}
    assert len(last_json(drivetrain("runs", "--json"))["runs"]) == 1


def test_spin_reads_a_parameter_as_its_type(spans: Path, drivetrain: Command, last_json: Read) -> None:
    last_json(drivetrain("run", "spans", "--json"))
    answer = last_json(drivetrain("spin", "Double", "--param", "by=3", "--json"))
    assert answer["outputs"]["numbers"]["properties"] == {"total": 1003}
    wrong = drivetrain("spin", "Double", "--param", "by=three")
    assert wrong.exit_code == 2
    assert "the parameter 'by' takes int, not 'three'" in wrong.stderr


def test_diff_names_what_changed(spans: Path, drivetrain: Command, last_json: Read) -> None:
    one = last_json(drivetrain("run", "spans", "--json"))["run"]
    two = last_json(drivetrain("run", "spans", "--param", "by=5", "--json"))["run"]
    answer = last_json(drivetrain("diff", one, two, "--json"))
    assert answer["parameters"] == {"by": [2, "5"]} or answer["parameters"] == {"by": [2, 5]}
    assert answer["nodes"] == {
        "Double": {"changes": ["parameter by: 2 -> 5"], "properties": {"numbers.total": [1002, 1005]}}
    }
    assert "parameter by: 2 -> 5" in drivetrain("diff", one, two).stdout
    assert "nothing differs" in drivetrain("diff", one, one).stdout


def test_parameters_come_from_the_shell_a_file_and_the_environment_in_this_order(
    spans: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def total(*arguments: str) -> object:
        run = last_json(drivetrain("run", "spans", *arguments, "--json"))["run"]
        shown = last_json(drivetrain("diff", run, run, "--json"))
        assert shown["nodes"] == {}
        listed = last_json(drivetrain("runs", "--json"))["runs"]
        return next(one["parameters"] for one in listed if one["run"] == run)

    for name, text in {"p.json": '{"span": 5}', "p.yaml": "span: 5\n", "p.toml": "span = 5\n"}.items():
        Path(name).write_text(text)
        assert total("--params", name) == {"span": 5, "by": 2}
    monkeypatch.setenv("DRIVETRAIN_PARAM_SPAN", "6")
    monkeypatch.setenv("DRIVETRAIN_PARAM_BY", "9")
    assert total() == {"span": 6, "by": 9}
    assert total("--params", "p.yaml") == {"span": 5, "by": 9}
    assert total("--params", "p.yaml", "--param", "span=8") == {"span": 8, "by": 9}
    Path("bad.yaml").write_text("- 1\n")
    bad = drivetrain("run", "spans", "--params", "bad.yaml")
    assert bad.exit_code == 2
    assert "holds no parameters" in bad.stderr


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


LOOPS = """
    import drivetrain as dt

    @dt.component
    def Part(*, number: int) -> int:
        if number in (3, 5):
            raise ValueError(f"no {number}")
        return number

    @dt.component
    def Total(*, values: list[int]) -> int:
        return sum(values)

    @dt.pipeline
    def loops(many: list[int]) -> None:
        Total(values=dt.map_(lambda item: Part(number=item), over=many))
"""


def test_many_items_share_a_line_and_those_that_failed_have_their_own(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("loops", pipeline=LOOPS)
    monkeypatch.chdir(folder.parent)
    result = drivetrain("run", "loops", "--param", f"many={list(range(20))}")
    assert result.exit_code == 1
    table = result.stdout[result.stdout.index("reason") :]
    lines = [line.split() for line in table.splitlines()[1:5]]
    named = [[word for word in line if word != "└"][:2] for line in lines]
    assert named == [["Part[20]", "FAILED"], ["Part[3]", "FAILED"], ["Part[5]", "FAILED"], ["Total", "BLOCKED"]]
    assert "18 complete, 2 failed" in table
    shown = last_json(drivetrain("show", "--json"))
    assert shown["nodes"]["Part[3]"]["state"] == "FAILED"
    assert list(shown["nodes"])[:3] == ["Part[0]", "Part[1]", "Part[2]"]
    assert drivetrain("why", "Part[4]").exit_code == 0
    assert drivetrain("lineage", "Part[4]").exit_code == 0
    empty = drivetrain("run", "loops", "--param", "many=[]")
    assert "there are no items" in empty.stdout
    few = drivetrain("run", "loops", "--param", "many=[1,2]")
    assert "Part[1]" in few.stdout


def test_a_user_without_a_name_says_who_decides(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("asking", pipeline=ASKING).parent)
    drivetrain("run", "asking", "--param", "wait=0.1")
    run = str(json.loads(drivetrain("runs", "--json").stdout)["runs"][0]["run"])

    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    refused = drivetrain("approve", run, "Approval")
    assert refused.exit_code == 2
    assert "fix: say who decides: --by NAME" in refused.stderr
    assert "Read asks nobody" in drivetrain("approve", run, "Read", "--by", "ada").stderr
    assert drivetrain("approve", run, "Approval", "--by", "ada").exit_code == 0
