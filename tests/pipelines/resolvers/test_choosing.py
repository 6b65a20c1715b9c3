"""Windows over what earlier runs made, the newest, the latest blessed: which are found, which are too few."""

from __future__ import annotations

import shutil

import pytest
from drivetrain.pipelines import (
    Home,
    run_pipeline,
)
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.tests.pipelines.history import ROLL, Pipe, history, load, states, value


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return history(pipe)


def test_case_9_the_latest_blessed_of_three_models(home: Home, shop: Pipe) -> None:
    body = "Judge(Train([Load(span=count)]), dt.latest_blessed(), blessed=count != 3)"
    for span in (1, 2, 3):
        run_pipeline(home, shop(body), {"count": span})
    found = run_pipeline(home, shop(body), {"count": 4}).nodes["Judge"].outputs["evaluation"][0]
    assert found.properties["summary"] == "[(2, None, 1)]"


def test_case_9_nothing_blessed_and_no_models_are_no_error(home: Home, shop: Pipe) -> None:
    assert value(run_pipeline(home, shop("Model_(dt.resolvers.latest_model('blessed'))")), "Model_") == "none"
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
        "dt.resolvers.rolling(...): 2 of 3 spans missing; found 1",
        "dt.resolvers.rolling(...): 1 of 3 spans missing; found 1, 2",
        ["1", "2", "3"], ["2", "3", "4"], ["3", "4", "5"],
    ]  # fmt: skip
    again = run_pipeline(home, shop(ROLL), {"count": 3})
    assert states(again) == {"Load": "CACHED", "Show": "CACHED"}
    assert value(again, "Show") == ["1", "2", "3"]


def test_what_lacks_spans_is_skipped_and_so_is_what_needs_it(home: Home, shop: Pipe) -> None:
    body = "model = Train(dt.resolvers.rolling(Load(span=count), 3))\nPush(model)\nModel_(dt.optional(model))"
    result = run_pipeline(home, shop(body), {"count": 1})
    assert states(result) == {"Load": "COMPLETE", "Train": "SKIPPED", "Push": "SKIPPED", "Model_": "COMPLETE"}
    assert result.nodes["Train"].reason == "dt.resolvers.rolling(...): 2 of 3 spans missing; found 1"
    assert result.nodes["Push"].reason == "Train was skipped"
    assert result.state == "COMPLETE"
    execution = home.store.executions(component="parts:Train")[0]
    assert (execution.state, execution.properties["reason"]) == ("SKIPPED", result.nodes["Train"].reason)


def test_as_many_spans_as_there_are(home: Home, shop: Pipe) -> None:
    body = "Show(dt.resolvers.rolling(Load(span=count), 3, min_spans=1))"
    seen = [value(run_pipeline(home, shop(body), {"count": span}), "Show") for span in (2, 5, 6, 9)]
    assert seen == [["2"], ["2", "5"], ["2", "5", "6"], ["5", "6", "9"]]  # gaps are passed over


def test_a_span_that_is_redone_redoes_what_depends_on_it_alone(home: Home, shop: Pipe) -> None:
    text = "Texts(dt.resolvers.rolling(Load(span=count, text={text!r}), 2, min_spans=1))"
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
    body = "Show(dt.resolvers.rolling(Load(span=count), 3, keep_all_versions={keep}))"
    assert value(run_pipeline(home, shop(body.format(keep=False)), {"count": 3}), "Show") == ["1v2", "2v0", "3"]
    kept = value(run_pipeline(home, shop(body.format(keep=True)), {"count": 3}), "Show")
    assert kept == ["1v1", "1v2", "2v0", "3"]


@pytest.fixture
def six_spans(home: Home, shop: Pipe, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spans loaded out of order, by the first test that asks for them; others get a copy of its store."""
    kept = tmp_path_factory.getbasetemp() / "six-spans"
    if kept.exists():
        shutil.copytree(kept, home.root, dirs_exist_ok=True)
    else:
        load(home, shop, 8, 3, 5, 7, 1, 2)
        shutil.copytree(home.root, kept)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("dt.resolvers.rolling(mine, 2, skip=1)", ["3", "5"]),
        ("dt.resolvers.rolling(mine, 9, start=3, min_spans=1)", ["3", "5", "6"]),
        ("dt.resolvers.rolling(mine, 2, exclude=[5])", ["3", "6"]),
        ("dt.resolvers.rolling(Examples, 2, node='Load')", ["7", "8"]),
        ("dt.resolvers.rolling(Examples, 2)", ["7", "8"]),
        ("dt.resolvers.static_range(mine, 1, 3)", ["1", "2", "3"]),
        ("dt.resolvers.static_range(mine, 5, 6)", ["5", "6"]),
        ("dt.resolvers.static_range(mine, 3, count, min_spans=1)", ["3", "5", "6"]),
        ("dt.resolvers.static_range(mine, 0, 2, min_spans=2)", ["1", "2"]),
        ("dt.resolvers.static_range(Examples, start=5, node='Load')", ["5", "7", "8"]),
        ("dt.resolvers.static_range(mine, 3, 5)", "1 of 3 spans missing (4); found 3, 5"),
        ("dt.resolvers.static_range(mine, 5, 8)", "2 of 4 spans missing (7, 8); found 5, 6"),  # never after its own
        ("dt.resolvers.rolling(mine, 2, before=True)", ["3", "5"]),
        ("dt.resolvers.rolling(mine, 9, before=True)", "5 of 9 spans missing; found 1, 2, 3, 5"),
        ("dt.resolvers.all_spans(mine)", ["1", "2", "3", "5", "6"]),
        ("dt.resolvers.all_spans(Examples, node='Load')", ["1", "2", "3", "5", "7", "8"]),
        ("dt.resolvers.all_spans(Examples, node='Other')", []),
        ("dt.latest(Examples, node='Load', count=2)", ["2", "1"]),
        ("dt.latest(Examples, node='Load', count=2, by='version')", ["8", "7"]),
        ("dt.latest(Examples, node='Load', count=99, by='version')", ["8", "7", "5", "3", "2", "1"]),
        ("dt.artifact(Examples, where={'span': ('<=', count)}, count=2)", ["2", "1"]),
        ("dt.artifact(Examples, where={'span': ('in', [3, 5, 6])}, count=9)", ["5", "3"]),
        ("[dt.latest(Examples, node='Load'), mine]", ["6", "2"]),
    ],
)
@pytest.mark.usefixtures("six_spans")
def test_what_is_asked_for_and_found(home: Home, shop: Pipe, asked: str, found: object) -> None:
    body = f"mine = Load(span=count)\nOne.options(id='Other')(mine)\nShow({asked})"
    if "node='Other'" in asked:
        body = body.replace("One.options(id='Other')(mine)", "Load.options(id='Other')(span=99)")
    result = run_pipeline(home, shop(body), {"count": 6})
    node = result.nodes["Show"]
    assert (node.outputs["value"][0].properties["value"] if node.outputs else node.reason.partition(": ")[2]) == found


def test_a_number_of_spans_may_be_a_parameter(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 4)
    body = "Show(dt.resolvers.rolling(Examples, count, node='Load'))\nLoad(span=9)"
    assert value(run_pipeline(home, shop(body), {"count": 2}), "Show") == ["3", "4"]
    assert value(run_pipeline(home, shop(body), {"count": 3}), "Show") == ["3", "4", "9"]
    assert "give a whole number, 1 or more" in run_pipeline(home, shop(body), {"count": 0}).nodes["Show"].reason


def test_the_span_before(home: Home, shop: Pipe) -> None:
    load(home, shop, 9, 2, 4, 3)
    body = (
        "mine = Load(span=count)\nOne(dt.resolvers.previous(mine))\n"
        "Show(dt.resolvers.rolling(mine, 2, before=True, min_spans=0))"
    )
    seen = [run_pipeline(home, shop(body), {"count": span}) for span in (4, 5, 1)]
    assert [(value(result, "One"), value(result, "Show")) for result in seen] == [
        (3, ["2", "3"]), (4, ["3", "4"]), (-1, []),
    ]  # fmt: skip


def test_without_any_history(home: Home, shop: Pipe) -> None:
    body = """
        Load(span=count)
        Show(dt.resolvers.rolling(Examples, 1, node="Load"))
        Show.options(id="All")(dt.resolvers.all_spans(Examples))
        One(dt.artifact(Examples, where={"span": 3}))
        Model_(dt.resolvers.newest_model_not_trained_on(Load.options(id="Second")(span=1)))
    """
    result = run_pipeline(home, shop(body))
    assert result.nodes["Show"].state == "SKIPPED"
    assert "found none" in result.nodes["Show"].reason
    assert (value(result, "All"), value(result, "One"), value(result, "Model_")) == ([], -1, "none")


def test_what_a_gate_held_back_can_be_left_out(home: Home, shop: Pipe) -> None:
    body = (
        "mine = Load(span=count)\nCheck(mine, bad=2)\nShow(dt.resolvers.rolling(mine, 2, min_spans=1, passed={passed}))"
    )
    for span in (1, 2):
        result = run_pipeline(home, shop(body.format(passed=True)), {"count": span})
    assert states(result) == {
        "Load": "COMPLETE",
        "Check": "COMPLETE",
        "Show": "BLOCKED",
    }  # a window is not a way around it
    assert value(run_pipeline(home, shop(body.format(passed=True)), {"count": 3}), "Show") == ["1", "3"]
    assert value(run_pipeline(home, shop(body.format(passed=False)), {"count": 3}), "Show") == ["2", "3"]


def test_what_a_gate_vetoed_is_left_out_of_windows(home: Home, shop: Pipe) -> None:
    """Until the gate judges it again; the other nodes of a run that a gate stopped take nothing from later windows."""
    windows = """
        mine = Load(span=count)
        Check(mine, bad={bad})
        Show(dt.resolvers.rolling(mine, 2, min_spans=1))
        Show.options(id="Before")(dt.resolvers.rolling(mine, 9, before=True, min_spans=0))
        Show.options(id="Range")(dt.resolvers.static_range(mine, 1, 3, min_spans=1))
        Show.options(id="Every")(dt.resolvers.all_spans(Examples, node="Load"))
        One(dt.resolvers.previous(mine))
        Show.options(id="Whole")(dt.resolvers.static_range(mine, 1, 3))
    """
    for span in (1, 2):
        run_pipeline(home, shop(windows.format(bad=2)), {"count": span})
    notes: list[str] = []

    class Notes(NullObserver):
        def note(self, node: str, text: str) -> None:
            notes.append(f"{node}: {text}")

    third = run_pipeline(home, shop(windows.format(bad=2)), {"count": 3}, observer=lambda _: Notes())
    assert [value(third, node) for node in ("Show", "Before", "Range", "Every", "One")] == [
        ["1", "3"], ["1"], ["1", "3"], ["1"], 1,
    ]  # fmt: skip
    assert third.nodes["Whole"].reason.endswith("1 of 3 spans missing (2); found 1, 3; a gate vetoed 2")
    assert "Show: dt.resolvers.rolling(...) leaves out what a gate vetoed: span 2" in notes
    # The gate has another bound by now, and passes the same artifact.
    assert states(run_pipeline(home, shop(windows.format(bad=99)), {"count": 2}))["Load"] == "CACHED"
    again = run_pipeline(home, shop(windows.format(bad=99)), {"count": 3})
    assert [value(again, node) for node in ("Show", "Before", "Whole", "One")] == [
        ["2", "3"], ["1", "2"], ["1", "2", "3"], 2,
    ]  # fmt: skip


def test_what_was_made_of_vetoed_examples_is_left_out_too(home: Home, shop: Pipe) -> None:
    """Statistics are measured before the gate that judges by them, and describe what it vetoed."""
    body = """
        mine = Load(span=count)
        statistics = Count(mine)
        Check(mine, statistics, bad={bad})
        Counts(dt.resolvers.rolling(statistics, 2, min_spans=1))
        Counts.options(id="Before")([dt.resolvers.previous(statistics)])
        Counts.options(id="All")(dt.resolvers.all_spans(statistics, passed=False))
    """
    for span in (1, 2):
        run_pipeline(home, shop(body.format(bad=2)), {"count": span})
    notes: list[str] = []

    class Notes(NullObserver):
        def note(self, node: str, text: str) -> None:
            notes.append(f"{node}: {text}")

    third = run_pipeline(home, shop(body.format(bad=2)), {"count": 3}, observer=lambda _: Notes())
    assert [value(third, node) for node in ("Counts", "Before", "All")] == [[1, 3], [1], [1, 2, 3]]
    assert "Counts: dt.resolvers.rolling(...) leaves out what a gate vetoed: span 2" in notes
    # The gate has another bound by now: it passes the second span, and vetoes the third.
    for span in (2, 3):
        assert states(run_pipeline(home, shop(body.format(bad=3)), {"count": span}))["Count"] == "CACHED"
    fourth = run_pipeline(home, shop(body.format(bad=3)), {"count": 4})
    assert [value(fourth, node) for node in ("Counts", "Before")] == [[2, 4], [2]]


def test_a_span_that_was_mended_is_taken_in_a_version_that_no_gate_vetoed(home: Home, shop: Pipe) -> None:
    body = """
        mine = Load(span=count, version={version}, text="{version}")
        Check(mine, bad={bad})
        Texts(dt.resolvers.rolling(mine, 2))
    """
    for version, bad in ((1, 0), (2, 1)):  # the newer version of the first span is the bad one
        run_pipeline(home, shop(body.format(version=version, bad=bad)), {"count": 1})
    assert value(run_pipeline(home, shop(body.format(version=1, bad=0)), {"count": 2}), "Texts") == ["1 1", "2 1"]


def test_what_is_deleted_or_gone_from_the_disk_is_not_found(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 4)
    by_span = {record.properties["span"]: record for record in home.store.artifacts(type="Examples")}
    home.store.update_artifact(by_span[2], state="DELETED")
    shutil.rmtree(home.payloads.local(by_span[3].uri))
    assert value(run_pipeline(home, shop(ROLL), {"count": 5}), "Show") == ["1", "4", "5"]
    assert value(run_pipeline(home, shop("Load(span=8)\nOne(dt.artifact(Examples, where={'span': 3}))")), "One") == -1
