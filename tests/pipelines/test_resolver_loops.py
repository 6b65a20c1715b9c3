"""Windows and pairs of spans as the items of loops."""

from __future__ import annotations

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
