"""Windows and pairs of spans as the items of loops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drivetrain.pipelines import (
    Home,
    run_pipeline,
)
from drivetrain.tests.pipelines.history import Pipe, history, load, value


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return history(pipe)


def test_of_a_loop_the_windows_are_of_this_run(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, text="before")
    body = """
        months = dt.map_(lambda span: Load(span=span), over=[2, 3, 4])
        Texts(dt.resolvers.rolling(months, 9, min_spans=1))
        windows = dt.loops.sliding(months, 2)
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


ITEMS = """
    months = dt.map_(lambda span: Load(span=span), over=[3, 1, 2])
    counts = dt.map_(lambda span: Count.options(id="C")(Load.options(id="L")(span=span)), over=[2, 3])
    dt.map_(lambda window: Show(window), over=dt.loops.sliding(months, 2))
    dt.map_(lambda window: Texts(window), over=dt.loops.sequential(months, 3))
    dt.map_(lambda pair: Both(pair["rows"], pair["counts"]), over=dt.loops.paired({"rows": months, "counts": counts}))
"""


def test_the_items_are_the_same_in_every_store(home: Home, shop: Pipe, tmp_path: Path) -> None:
    other = Home(tmp_path / "other" / ".drivetrain")
    load(other, shop, 2)
    results = [run_pipeline(each, shop(ITEMS)) for each in (home, other)]
    assert [result.state for result in results] == ["COMPLETE", "COMPLETE"]
    one, two = ({name: node.outputs for name, node in result.nodes.items()} for result in results)
    assert {"Sliding", "Sequential", "Paired", "Show[1]", "Texts[0]", "Both[1]"} <= one.keys()
    prints = [
        {name: [record.fingerprint for records in found.values() for record in records] for name, found in each.items()}
        for each in (one, two)
    ]
    assert prints[0] == prints[1]
    # Where the payload is read, each artifact is told by span, version and content; the store has it by its uid.
    (record,) = one["Sliding"]["value"]
    windows = json.loads((home.payloads.local(record.uri, record.fingerprint) / "content" / "value.json").read_text())
    made = {span: one[f"Load[{place}]"]["examples"][0] for place, span in enumerate([3, 1, 2])}
    assert windows == [[[span, None, made[span].fingerprint] for span in pair] for pair in ([1, 2], [2, 3])]
    assert record.properties["value"] == [[made[span].uid for span in pair] for pair in ([1, 2], [2, 3])]
    # Runs of stores from before are resumed: the node gives the same key and type.
    assert shop(ITEMS).build()["Sliding"].outputs == (("value", "Value"),)
    other.close()


def test_the_artifacts_of_a_window_are_gone_over(home: Home, shop: Pipe) -> None:
    body = """
        months = dt.map_(lambda span: Load(span=span), over=[1, 2, 3])
        inner = lambda window: Counts(dt.map_(lambda month: Count(month), over=window, id="inner"))
        dt.map_(inner, over=dt.loops.sliding(months, 2))
    """
    result = run_pipeline(home, shop(body))
    assert result.state == "COMPLETE"
    assert [value(result, f"Counts[{place}]") for place in (0, 1)] == [[1, 2], [2, 3]]


def test_windows_over_history_for_a_loop(home: Home, shop: Pipe) -> None:
    load(home, shop, 1, 2, 3, 5, 6)
    body = """
        mine = Load(span=count)
        sequence = dt.loops.sequential(Examples, 2, node="Load", exclude=[4])
        dt.map_(lambda window: Show.options(id="Slid")(window), over=dt.loops.sliding(mine, 3, stride=2))
        dt.map_(lambda window: Show.options(id="Seq")(window), over=sequence)
        dt.map_(lambda window: Train(window), over=dt.loops.sequential(mine, 9, id="TooLong"))
        Texts(dt.resolvers.static_range(mine, 1, 3))
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
        pairs = dt.loops.paired({"rows": Examples, "counts": Statistics})
        dt.map_(lambda pair: Both(pair["rows"], pair["counts"]), over=pairs)
    """
    result = run_pipeline(home, shop(body))
    assert [value(result, f"Both[{place}]") for place in (0, 1)] == [[1, 1], [3, 3]]
    assert "Both[2]" not in result.nodes
