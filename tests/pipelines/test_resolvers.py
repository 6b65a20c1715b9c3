"""What is chosen from history: windows over spans, by property, by lineage; deterministic, whatever runs beside it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import assert_type

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError
from drivetrain.metadata import Examples, MetadataStore, Model, Statistics
from drivetrain.pipelines import (
    Home,
    Pipeline,
    PipelineFunction,
    RunOptions,
    RunResult,
    resume,
    run_pipeline,
)
from drivetrain.pipelines.history.answers import Answers

Pipe = Callable[..., PipelineFunction[..., object]]

PARTS = """
    from __future__ import annotations
    import time
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.metadata import Evaluation, Examples, Model, PushedModel, Statistics

    class Verdict(dt.Artifact):
        passed: bool = True

    class Score(dt.Artifact):
        auc: float = 0.0
        name: str = ""
        stage: str | None = None

    def write(artifact, text):
        (artifact.content / "text.txt").write_text(str(text))
        return artifact

    @dt.component
    def Load(*, span: int, version: int | None = None, text: str = "") -> Examples:
        return write(Examples.new(span=span, version=version), f"{span} {text}")

    @dt.component
    def Count(examples: Examples) -> Statistics:
        return write(Statistics.new(span=examples.span), examples.span)

    @dt.component(gates="examples")
    def Check(examples: Examples, *, bad: int) -> Verdict:
        return write(Verdict.new(passed=examples.span != bad), examples.span)

    @dt.component
    def Train(examples: list[Examples], *, rate: int = 1) -> Model:
        return write(Model.new(), [(one.span, one.version, rate) for one in examples])

    @dt.component
    def Judge(model: Model, baseline: Model | None = None, *, blessed: bool = True) -> Evaluation:
        text = "none" if baseline is None else (baseline.content / "text.txt").read_text()
        return write(Evaluation.new(blessed=blessed, summary=text), text)

    @dt.component
    def Push(model: Model) -> PushedModel:
        return write(PushedModel.new(destination="there"), "pushed")

    @dt.component
    def Show(examples: list[Examples]) -> list[str]:
        return [f"{one.span}" + ("" if one.version is None else f"v{one.version}") for one in examples]

    @dt.component
    def Texts(examples: list[Examples]) -> list[str]:
        return [(one.content / "text.txt").read_text() for one in examples]

    @dt.component
    def Model_(model: Model | None = None) -> str:
        return "none" if model is None else (model.content / "text.txt").read_text()

    @dt.component
    def One(examples: Examples | None = None) -> int:
        return -1 if examples is None else examples.span

    @dt.component
    def Both(examples: Examples, statistics: Statistics) -> list[int]:
        return [examples.span, statistics.span]

    @dt.component
    def Rate(*, auc: float, name: str, stage: str | None = None) -> Score:
        return write(Score.new(auc=auc, name=name, stage=stage), (auc, name, stage))

    @dt.component
    def Best(score: Score | None = None) -> str:
        return "none" if score is None else score.name

    @dt.component
    def Names(scores: list[Score]) -> list[str]:
        return [one.name for one in scores]

    @dt.component
    def Wait(*, until: str) -> int:
        Path(until + ".waits").touch()
        while not Path(until).exists():
            time.sleep(0.02)
        return 1

    @dt.component
    def Stop(examples: list[Examples], *, until: str) -> list[str]:
        if not Path(until).exists():
            raise ValueError("not yet")
        return Show.fn(examples)
"""


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return lambda body, **more: pipe(body, **{"parts": PARTS, **more})


def value(result: RunResult, node: str) -> object:
    return result.nodes[node].outputs["value"][0].properties["value"]


def load(home: Home, shop: Pipe, *spans: int, version: int | None = None, text: str = "") -> None:
    for span in spans:
        run_pipeline(home, shop(f"Load(span=count, version={version}, text={text!r})"), {"count": span})


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


ROLL = "Show(dt.rolling(Load(span=count), 3))"


# -- TFX's case 9


def test_case_9_the_latest_blessed_of_three_models(home: Home, shop: Pipe) -> None:
    body = "Judge(Train([Load(span=count)]), dt.latest_blessed(), blessed=count != 3)"
    for span in (1, 2, 3):
        run_pipeline(home, shop(body), {"count": span})
    found = run_pipeline(home, shop(body), {"count": 4}).nodes["Judge"].outputs["evaluation"][0]
    assert found.properties["summary"] == "[(2, None, 1)]"


def test_case_9_nothing_blessed_and_no_models_are_no_error(home: Home, shop: Pipe) -> None:
    assert value(run_pipeline(home, shop("Model_(dt.latest_model('blessed'))")), "Model_") == "none"
    body = "Judge(Train([Load(span=count)]), dt.latest_blessed(), blessed=False)"
    for span in (1, 2):
        result = run_pipeline(home, shop(body), {"count": span})
        assert result.nodes["Judge"].outputs["evaluation"][0].properties["summary"] == "none"


# -- windows


def test_a_window_rolls_and_an_old_month_finds_its_own(home: Home, shop: Pipe) -> None:
    seen = []
    for span in (1, 2, 3, 4, 5):
        node = run_pipeline(home, shop(ROLL), {"count": span}).nodes["Show"]
        seen.append(node.outputs["value"][0].properties["value"] if node.outputs else node.reason)
    assert seen == [
        "dt.rolling(...): 2 of 3 spans missing; found 1",
        "dt.rolling(...): 1 of 3 spans missing; found 1, 2",
        ["1", "2", "3"], ["2", "3", "4"], ["3", "4", "5"],
    ]  # fmt: skip
    again = run_pipeline(home, shop(ROLL), {"count": 3})
    assert states(again) == {"Load": "CACHED", "Show": "CACHED"}
    assert value(again, "Show") == ["1", "2", "3"]


def test_what_lacks_spans_is_skipped_and_so_is_what_needs_it(home: Home, shop: Pipe) -> None:
    body = "model = Train(dt.rolling(Load(span=count), 3))\nPush(model)\nModel_(dt.optional(model))"
    result = run_pipeline(home, shop(body), {"count": 1})
    assert states(result) == {"Load": "COMPLETE", "Train": "SKIPPED", "Push": "SKIPPED", "Model_": "COMPLETE"}
    assert result.nodes["Train"].reason == "dt.rolling(...): 2 of 3 spans missing; found 1"
    assert result.nodes["Push"].reason == "Train was skipped"
    assert result.state == "COMPLETE"
    execution = home.store.executions(component="parts:Train")[0]
    assert (execution.state, execution.properties["reason"]) == ("SKIPPED", result.nodes["Train"].reason)


def test_as_many_spans_as_there_are(home: Home, shop: Pipe) -> None:
    body = "Show(dt.rolling(Load(span=count), 3, min_spans=1))"
    seen = [value(run_pipeline(home, shop(body), {"count": span}), "Show") for span in (2, 5, 6, 9)]
    assert seen == [["2"], ["2", "5"], ["2", "5", "6"], ["5", "6", "9"]]  # gaps are passed over


def test_a_span_that_is_redone_redoes_what_depends_on_it_alone(home: Home, shop: Pipe) -> None:
    text = "Texts(dt.rolling(Load(span=count, text={text!r}), 2, min_spans=1))"
    for span in (1, 2, 3, 4):
        run_pipeline(home, shop(text.format(text="")), {"count": span})
    load(home, shop, 2, text="mended")  # the same span again: what was made last counts
    assert states(run_pipeline(home, shop(text.format(text="")), {"count": 1}))["Texts"] == "CACHED"
    assert states(run_pipeline(home, shop(text.format(text="")), {"count": 4}))["Texts"] == "CACHED"
    third = run_pipeline(home, shop(text.format(text="")), {"count": 3})
    assert states(third)["Texts"] == "COMPLETE"
    assert value(third, "Texts") == ["2 mended", "3 "]


def test_the_newest_version_of_a_span_not_the_newest_made(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, version=2)
    load(home, shop, 1, version=1)
    load(home, shop, 2, version=0)
    body = "Show(dt.rolling(Load(span=count), 3, keep_all_versions={keep}))"
    assert value(run_pipeline(home, shop(body.format(keep=False)), {"count": 3}), "Show") == ["1v2", "2v0", "3"]
    kept = value(run_pipeline(home, shop(body.format(keep=True)), {"count": 3}), "Show")
    assert kept == ["1v1", "1v2", "2v0", "3"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("dt.rolling(mine, 2, skip=1)", ["3", "5"]),
        ("dt.rolling(mine, 9, start=3, min_spans=1)", ["3", "5", "6"]),
        ("dt.rolling(mine, 2, exclude=[5])", ["3", "6"]),
        ("dt.rolling(Examples, 2, node='Load')", ["7", "8"]),
        ("dt.rolling(Examples, 2)", ["7", "8"]),
        ("dt.static_range(mine, 1, 3)", ["1", "2", "3"]),
        ("dt.static_range(mine, 5, 6)", ["5", "6"]),
        ("dt.static_range(mine, 3, count, min_spans=1)", ["3", "5", "6"]),
        ("dt.static_range(mine, 0, 2, min_spans=2)", ["1", "2"]),
        ("dt.static_range(Examples, start=5, node='Load')", ["5", "7", "8"]),
        ("dt.static_range(mine, 3, 5)", "1 of 3 spans missing (4); found 3, 5"),
        ("dt.static_range(mine, 5, 8)", "2 of 4 spans missing (7, 8); found 5, 6"),  # never after its own
        ("dt.rolling(mine, 2, before=True)", ["3", "5"]),
        ("dt.rolling(mine, 9, before=True)", "5 of 9 spans missing; found 1, 2, 3, 5"),
        ("dt.all_spans(mine)", ["1", "2", "3", "5", "6"]),
        ("dt.all_spans(Examples, node='Load')", ["1", "2", "3", "5", "7", "8"]),
        ("dt.all_spans(Examples, node='Other')", []),
        ("dt.latest(Examples, node='Load', count=2)", ["2", "1"]),
        ("dt.latest(Examples, node='Load', count=2, by='version')", ["8", "7"]),
        ("dt.latest(Examples, node='Load', count=99, by='version')", ["8", "7", "5", "3", "2", "1"]),
        ("dt.artifact(Examples, where={'span': ('<=', count)}, count=2)", ["2", "1"]),
        ("dt.artifact(Examples, where={'span': ('in', [3, 5, 6])}, count=9)", ["5", "3"]),
        ("[dt.latest(Examples, node='Load'), mine]", ["6", "2"]),
    ],
)
def test_what_is_asked_for_and_found(home: Home, shop: Pipe, asked: str, found: object) -> None:
    load(home, shop, 8, 3, 5, 7, 1, 2)
    body = f"mine = Load(span=count)\nOne.options(id='Other')(mine)\nShow({asked})"
    if "node='Other'" in asked:
        body = body.replace("One.options(id='Other')(mine)", "Load.options(id='Other')(span=99)")
    result = run_pipeline(home, shop(body), {"count": 6})
    node = result.nodes["Show"]
    assert (node.outputs["value"][0].properties["value"] if node.outputs else node.reason.partition(": ")[2]) == found


def test_a_number_of_spans_may_be_a_parameter(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 4)
    body = "Show(dt.rolling(Examples, count, node='Load'))\nLoad(span=9)"
    assert value(run_pipeline(home, shop(body), {"count": 2}), "Show") == ["3", "4"]
    assert value(run_pipeline(home, shop(body), {"count": 3}), "Show") == ["3", "4", "9"]
    assert "give a whole number, 1 or more" in run_pipeline(home, shop(body), {"count": 0}).nodes["Show"].reason


def test_the_span_before(home: Home, shop: Pipe) -> None:
    load(home, shop, 9, 2, 4, 3)
    body = "mine = Load(span=count)\nOne(dt.previous(mine))\nShow(dt.rolling(mine, 2, before=True, min_spans=0))"
    seen = [run_pipeline(home, shop(body), {"count": span}) for span in (4, 5, 1)]
    assert [(value(result, "One"), value(result, "Show")) for result in seen] == [
        (3, ["2", "3"]), (4, ["3", "4"]), (-1, []),
    ]  # fmt: skip


def test_without_any_history(home: Home, shop: Pipe) -> None:
    body = """
        Load(span=count)
        Show(dt.rolling(Examples, 1, node="Load"))
        Show.options(id="All")(dt.all_spans(Examples))
        One(dt.artifact(Examples, where={"span": 3}))
        Model_(dt.newest_model_not_trained_on(Load.options(id="Second")(span=1)))
    """
    result = run_pipeline(home, shop(body))
    assert result.nodes["Show"].state == "SKIPPED"
    assert "found none" in result.nodes["Show"].reason
    assert (value(result, "All"), value(result, "One"), value(result, "Model_")) == ([], -1, "none")


def test_what_a_gate_held_back_can_be_left_out(home: Home, shop: Pipe) -> None:
    body = "mine = Load(span=count)\nCheck(mine, bad=2)\nShow(dt.rolling(mine, 2, min_spans=1, passed={passed}))"
    for span in (1, 2):
        result = run_pipeline(home, shop(body.format(passed=True)), {"count": span})
    assert states(result) == {
        "Load": "COMPLETE",
        "Check": "COMPLETE",
        "Show": "BLOCKED",
    }  # a window is no way around it
    assert value(run_pipeline(home, shop(body.format(passed=True)), {"count": 3}), "Show") == ["1", "3"]
    assert value(run_pipeline(home, shop(body.format(passed=False)), {"count": 3}), "Show") == ["2", "3"]


def test_what_is_deleted_or_gone_from_the_disk_is_not_found(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 4)
    by_span = {record.properties["span"]: record for record in home.store.artifacts(type="Examples")}
    home.store.update_artifact(by_span[2], state="DELETED")
    shutil.rmtree(home.payloads.local(by_span[3].uri))
    assert value(run_pipeline(home, shop(ROLL), {"count": 5}), "Show") == ["1", "4", "5"]
    assert value(run_pipeline(home, shop("Load(span=8)\nOne(dt.artifact(Examples, where={'span': 3}))")), "One") == -1


def test_of_a_loop_the_windows_are_of_this_run(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, text="before")
    body = """
        months = dt.map_(lambda span: Load(span=span), over=[2, 3, 4])
        Texts(dt.rolling(months, 9, min_spans=1))
        windows = dt.sliding(months, 2)
        dt.map_(lambda window: Show(window), over=windows, id="slide")
    """
    result = run_pipeline(home, shop(body))
    # What this run makes of a span stands for what earlier ones made of it.
    assert value(result, "Texts") == ["1 before", "2 ", "3 ", "4 "]
    assert [value(result, f"Show[{place}]") for place in (0, 1)] == [["2", "3"], ["3", "4"]]
    assert "Show[2]" not in result.nodes


def test_an_item_that_names_no_artifact(home: Home, shop: Pipe) -> None:
    load(home, shop, 1)
    result = run_pipeline(home, shop("dt.map_(lambda item: One(item), over=[3, 'absent'])"))
    assert "3 names no artifact" in result.nodes["One[0]"].reason
    assert "there is no artifact 'absent'" in result.nodes["One[1]"].reason
    (record,) = home.store.artifacts(type="Examples")
    home.store.update_artifact(record, state="DELETED")
    result = run_pipeline(home, shop(f"dt.map_(lambda item: One(item), over=[{record.uid!r}])"))
    assert f"{record.uri} has been deleted" in result.nodes["One[0]"].reason


def test_windows_over_history_for_a_loop(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 5, 6)
    body = """
        mine = Load(span=count)
        sequence = dt.sequential(Examples, 2, node="Load", exclude=[4])
        dt.map_(lambda window: Show.options(id="Slid")(window), over=dt.sliding(mine, 3, stride=2))
        dt.map_(lambda window: Show.options(id="Seq")(window), over=sequence)
        dt.map_(lambda window: Train(window), over=dt.sequential(mine, 9, id="TooLong"))
        Texts(dt.static_range(mine, 1, 3))
    """
    result = run_pipeline(home, shop(body), {"count": 7})
    slid = [value(result, f"Slid[{place}]") for place in range(2)]
    assert slid == [["1", "2", "3"], ["3", "5", "6"]]
    assert [value(result, f"Seq[{place}]") for place in range(4)] == [["1", "2"], ["2", "3"], ["3", "5"], ["5", "6"]]
    assert result.state == "COMPLETE"
    execution = home.store.executions(component="parts:Show")[0]
    assert len(home.store.inputs(execution)["examples"]) in (2, 3)  # lineage knows what went in


def test_pairs_of_the_same_span(home: Home, shop: Pipe) -> None:
    for span in (1, 2, 3):
        counted = "\nCount(mine)" if span != 2 else ""
        run_pipeline(home, shop(f"mine = Load(span=count){counted}"), {"count": span})
    body = """
        Count.options(id="C")(Load(span=9))
        pairs = dt.paired({"rows": Examples, "counts": Statistics})
        dt.map_(lambda pair: Both(pair["rows"], pair["counts"]), over=pairs)
    """
    result = run_pipeline(home, shop(body))
    assert [value(result, f"Both[{place}]") for place in (0, 1)] == [[1, 1], [3, 3]]
    assert "Both[2]" not in result.nodes


# -- by property


def test_by_property(home: Home, shop: Pipe) -> None:
    for auc, name, stage in ((0.5, "a", None), (0.9, "b", "live"), (0.7, "c", "live"), (0.7, "d", "old")):
        run_pipeline(home, shop(f"Rate(auc={auc}, name={name!r}, stage={stage!r})"))
    asked = {
        "{'auc': 0.7}": ["d", "c"],
        "{'auc': ('==', 0.7), 'stage': 'live'}": ["c"],
        "{'auc': ('>', 0.7)}": ["b"],
        "{'auc': ('>=', 0.7), 'name': ('<', 'd')}": ["c", "b"],
        "{'auc': ('<', 0.7)}": ["a"],
        "{'auc': ('<=', 0.7)}": ["d", "c", "a"],
        "{'stage': ('!=', 'live')}": ["d", "a"],
        "{'stage': None}": ["a"],
        "{'stage': ('<', 'z')}": ["d", "c", "b"],
        "{'stage': ('in', ['old', None])}": ["d", "a"],
        "{}": ["d", "c", "b", "a"],
    }
    for where, names in asked.items():
        body = f"Names(dt.artifact(Score, where={where}, count=9))\nBest(dt.artifact(Score, where={where}))"
        result = run_pipeline(home, shop(body))
        assert (value(result, "Names"), value(result, "Best")) == (names, names[0]), where
    result = run_pipeline(home, shop("Names(dt.artifact(Score, where={'auc': ('<', 'high')}, count=1))"))
    assert "Score.auc is 0.7, which is not compared by < with 'high'" in result.nodes["Names"].reason


# -- by lineage


def test_the_newest_model_that_has_not_seen_a_span(home: Home, shop: Pipe) -> None:
    train = "Train(dt.rolling(Load(span=count), 2, min_spans=1), rate={rate})"
    for span in (1, 2, 3):
        run_pipeline(home, shop(train.format(rate=1)), {"count": span})
    body = "Model_(dt.newest_model_not_trained_on(Load(span=count)))"
    found = {span: value(run_pipeline(home, shop(body), {"count": span}), "Model_") for span in (1, 2, 3, 4)}
    assert found == {
        1: "[(2, None, 1), (3, None, 1)]",  # the newest has not seen 1
        2: "[(1, None, 1)]",
        3: "[(1, None, 1), (2, None, 1)]",
        4: "[(2, None, 1), (3, None, 1)]",
    }


def test_the_same_rows_under_another_span_were_seen_too(home: Home, shop: Pipe) -> None:
    more = """
    @dt.component
    def Rows(*, span: int) -> Examples:
        return write(Examples.new(span=span), "the same")
    """
    run_pipeline(home, shop("Train([Rows(span=1)])", parts=PARTS + more))
    result = run_pipeline(home, shop("Model_(dt.newest_model_not_trained_on(Rows(span=2)))", parts=PARTS + more))
    assert value(result, "Model_") == "none"


def test_what_only_a_cache_saw_was_not_trained_on(home: Home, shop: Pipe) -> None:
    more = """
    from typing import NamedTuple
    from drivetrain.metadata import AnalyzerCache

    class Learnt(NamedTuple):
        model: Model
        cache: AnalyzerCache

    @dt.component
    def Learn(examples: Examples, cache: AnalyzerCache | None = None, base: Model | None = None) -> Learnt:
        return Learnt(write(Model.new(), examples.span), write(AnalyzerCache.new(), examples.span))
    """
    for span in (1, 2):
        run_pipeline(
            home, shop("Learn(Load(span=count), dt.latest(AnalyzerCache))", parts=PARTS + more), {"count": span}
        )
    asked = "Model_(dt.newest_model_not_trained_on(Load(span=count)))"
    assert value(run_pipeline(home, shop(asked, parts=PARTS + more), {"count": 1}), "Model_") == "2"
    warm = "Learn(Load(span=count), base=dt.latest(Model))"
    run_pipeline(home, shop(warm, parts=PARTS + more), {"count": 3})  # it began as the model of span 2
    assert value(run_pipeline(home, shop(asked, parts=PARTS + more), {"count": 2}), "Model_") == "1"


def test_the_newest_model_by_how_far_it_came(home: Home, shop: Pipe) -> None:
    body = "model = Train([Load(span=count)])\n{rest}"
    run_pipeline(home, shop(body.format(rest="Judge(model)\nPush(model)")), {"count": 1})
    run_pipeline(home, shop(body.format(rest="Judge(model)")), {"count": 2})
    run_pipeline(home, shop(body.format(rest="Judge(model, blessed=False)")), {"count": 3})
    run_pipeline(home, shop(body.format(rest="")), {"count": 4})
    asked = "\n".join(f"Model_.options(id='{p}')(dt.latest_model('{p}'))" for p in ("exported", "blessed", "pushed"))
    result = run_pipeline(home, shop(asked))
    assert [value(result, policy) for policy in ("exported", "blessed", "pushed")] == [
        "[(4, None, 1)]", "[(2, None, 1)]", "[(1, None, 1)]",
    ]  # fmt: skip


# -- the same answer for a whole run, whatever runs beside it


def test_what_another_run_publishes_meanwhile_is_not_seen(home: Home, shop: Pipe, tmp_path: Path) -> None:
    load(home, shop, 1, 2)
    until = tmp_path / "until"
    body = f"""
        done = Wait(until={str(until)!r})
        Show.options(after=[done])(dt.rolling(Examples, 9, min_spans=1, node="Load"))
        Show.options(id="Mine", after=[done])(dt.all_spans(Load(span=7)))
    """
    slow = shop(body)
    found: list[RunResult] = []
    thread = threading.Thread(target=lambda: found.append(run_pipeline(Home(home.root), slow)))
    thread.start()
    while not Path(f"{until}.waits").exists():
        time.sleep(0.02)
    load(home, shop, 3)
    until.touch()
    thread.join()
    assert (value(found[0], "Show"), value(found[0], "Mine")) == (["1", "2"], ["1", "2", "7"])
    assert value(run_pipeline(home, shop("Show(dt.all_spans(Examples))\nOne()")), "Show") == ["1", "2", "3", "7"]


def test_a_run_that_ends_meanwhile_changes_no_answer(home: Home, shop: Pipe, tmp_path: Path) -> None:
    """A run that began before and is COMPLETE only now counts for the next run, not for this one's second attempt."""
    load(home, shop, 1)
    until, mended = tmp_path / "until", tmp_path / "mended"
    older = shop(f"Load(span=2)\nWait(until={str(until)!r})")
    thread = threading.Thread(target=lambda: run_pipeline(Home(home.root), older))
    thread.start()
    while not Path(f"{until}.waits").exists() or len(home.store.artifacts(type="Examples")) < 2:
        time.sleep(0.02)
    body = f"Load(span=9)\nStop(dt.rolling(Examples, 9, min_spans=1, node='Load', passed=True), until={str(mended)!r})"
    assert run_pipeline(home, shop(body)).nodes["Stop"].state == "FAILED"
    until.touch()
    thread.join()
    mended.touch()
    assert value(resume(home), "Stop") == ["1"]
    assert value(run_pipeline(home, shop(body)), "Stop") == ["1", "2", "9"]


def test_a_skip_stays_a_skip_when_resumed(home: Home, shop: Pipe, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    body = f"mine = Load(span=2)\nShow(dt.rolling(mine, 2))\nStop([mine], until={str(mended)!r})"
    assert states(run_pipeline(home, shop(body))) == {"Load": "COMPLETE", "Show": "SKIPPED", "Stop": "FAILED"}
    run = home.store.contexts("run")[0].name
    load(home, shop, 1)
    mended.touch()
    shop(body)  # as it was built for that run
    again = resume(home, run)
    assert states(again) == {"Load": "COMPLETE", "Show": "SKIPPED", "Stop": "COMPLETE"}


def test_what_was_chosen_and_is_deleted_since_is_told(home: Home, shop: Pipe, tmp_path: Path) -> None:
    load(home, shop, 1)
    mended = tmp_path / "mended"
    body = f"Stop(dt.rolling(Load(span=2), 2), until={str(mended)!r})"
    run_pipeline(home, shop(body))
    (first,) = [one for one in home.store.artifacts(type="Examples") if one.properties["span"] == 1]
    home.store.update_artifact(first, state="DELETED")
    mended.touch()
    reason = resume(home).nodes["Stop"].reason
    assert f"{first.uri}, which dt.rolling(...) gave this run, has been deleted since" in reason


def test_of_two_who_ask_at_once_both_hear_the_first(tmp_path: Path) -> None:
    stores = [MetadataStore.open(tmp_path / "metadata.db") for _ in range(4)]
    run = stores[0].context("run", "one")
    barrier = threading.Barrier(len(stores))
    heard: list[object] = []

    def ask(number: int) -> None:
        def answer() -> int:
            barrier.wait()  # nobody has an answer before all were asked
            return number

        heard.append(Answers(stores[number], run).once(["what"], answer))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard) == len(stores)
    assert len(set(map(str, heard))) == 1
    for store in stores:
        store.close()


@pytest.mark.parametrize("runner", ["process", pytest.param("beam", marks=pytest.mark.beam)])
def test_in_processes_of_their_own(home: Home, shop: Pipe, runner: str) -> None:
    load(home, shop, 1, 2)
    body = """
        mine = Load(span=count)
        Show(dt.rolling(mine, 3))
        dt.map_(lambda window: Texts(window), over=dt.sliding(mine, 2))
        Show.options(id="Absent")(dt.rolling(mine, 5))
    """
    result = run_pipeline(home, shop(body), {"count": 3}, options=RunOptions(runner=runner))
    assert (value(result, "Show"), value(result, "Texts[1]")) == (["1", "2", "3"], ["2 ", "3 "])
    assert result.nodes["Absent"].state == "SKIPPED"


# -- as it is built


def test_a_type_checker_knows_what_is_found() -> None:
    """mypy checks these lines with the rest of the tests; none of them is called outside a pipeline."""

    def wired(examples: Examples, months: list[Examples]) -> None:
        assert_type(dt.rolling(examples, 3), list[Examples])
        assert_type(dt.rolling(months, 3), list[Examples])
        assert_type(dt.all_spans(Statistics), list[Statistics])
        assert_type(dt.previous(examples), Examples | None)
        assert_type(dt.latest(Examples), Examples | None)
        assert_type(dt.latest(Examples, count=2), list[Examples])
        assert_type(dt.artifact(Statistics, where={"span": 1}), Statistics | None)
        assert_type(dt.latest_model("pushed"), Model | None)
        assert_type(dt.newest_model_not_trained_on(examples), Model | None)
        assert_type(dt.sliding(months, 2), list[list[Examples]])
        assert_type(dt.spans("{SPAN}"), list[int])

    with pytest.raises(BuildError, match=r"dt\.rolling takes a component's output"):
        wired(Examples.new(), [])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("Show(dt.rolling(Load(span=1), 0))", "n is 0"),
        ("Show(dt.rolling(Load(span=1), 2, skip=-1))", "skip is -1"),
        ("Show(dt.rolling(3, 2))", "takes a component's output or an artifact type, not 3"),
        ("Show(dt.rolling(Load(span=1), 2, node='Load'))", "node= is for a type"),
        ("Show(dt.rolling(Examples, 2, before=True))", "a type has no span to be before"),
        ("One(dt.previous(Examples))", "takes a component's output"),
        ("Show(dt.rolling(Model, 2))", "Model has no property 'span'"),
        ("One(dt.rolling(Load(span=1), 2))", "takes one Examples, and dt.rolling(...) finds a list"),
        ("Train(dt.rolling(Statistics, 2))", "takes Examples, not Statistics"),
        ("Show(dt.rolling(Examples, 2, node='Lod'))\nLoad(span=1)", "did you mean 'Load'"),
        ("Count(dt.latest(Examples))", "must be given, and dt.latest(...) may find nothing"),
        ("One(dt.latest(Examples, count=2))", "finds a list"),
        ("Show(dt.latest(Examples, count=0))", "count is 0"),
        ("Model_(dt.latest(Model, by='version'))", "Model has no property 'span'"),
        ("One(dt.latest(Examples, by='size'))", "by='size'"),
        ("One(dt.artifact(Examples, where={'spam': 1}))", "Examples has no property 'spam'"),
        ("One(dt.artifact(Examples, where={'span': ('~', 1)}))", "is compared by '~'"),
        ("One(dt.artifact(Examples, where={'span': ('in', 'abc')}))", "give a list"),
        ("Model_(dt.latest_model('famous'))", "there is no policy 'famous'"),
        ("Model_(dt.newest_model_not_trained_on(Train([Load(span=1)])))", "Model has no property 'span'"),
        ("dt.sliding(dt.all_spans(Examples), 2, node='Load')", "is chosen already"),
        ("dt.spans('{SPAN}', id='Load')\nLoad(span=1)", "there already is a node 'Load'"),
        ("dt.paired({'a': Examples})", "takes two names, not 1"),
        (
            "dt.paired({'a': Examples, 'b': Statistics}, match_version=False, keep_all_versions=True)",
            "needs match_version",
        ),
        (
            "out = []\ndt.map_(lambda s: out.append(Load(span=s)), over=[1])\nShow(dt.rolling(out[0], 2))",
            "made for each item of map",
        ),
    ],
)
def test_what_is_wrong_is_told_when_it_is_built(shop: Pipe, body: str, says: str) -> None:
    with pytest.raises(BuildError) as caught:
        shop(body).build()
    assert says in str(caught.value)
    assert "pipeline.py:" in str(caught.value)


def test_several_of_a_kind_are_numbered(shop: Pipe) -> None:
    body = "for one in 'abc': dt.spans(f'{one}/{{SPAN}}')\ndt.sliding(Examples, 1)\ndt.sliding(Examples, 2)"
    assert shop(body).build().ids == ("Spans", "Spans2", "Spans3", "Sliding", "Sliding2")
    for alone in (lambda: dt.spans("{SPAN}"), lambda: dt.sliding(Examples, 2), lambda: dt.sequential(Examples, 2)):
        with pytest.raises(BuildError, match="is used outside a pipeline"):
            alone()


def test_the_compiled_form_keeps_what_is_asked(shop: Pipe) -> None:
    built = shop("mine = Load(span=count)\nCheck(mine, bad=0)\nShow(dt.rolling(mine, 3, exclude=[2]))").build()
    assert Pipeline.from_json(built.to_json()) == built
    assert built.upstream("Show") == ("Load", "Check")  # the gate holds a window back too
    source = built.to_json().partition('"query":"rolling"')[0]
    assert '"of":{"node":"Load","output":"examples"}' in source
