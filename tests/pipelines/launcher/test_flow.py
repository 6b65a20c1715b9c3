"""Branches and loops: what runs, on what, and what is skipped."""

from __future__ import annotations

import pytest
from drivetrain.pipelines import Home, run_pipeline
from drivetrain.tests.pipelines.flows import Pipe, flows, states, value


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


def test_a_returned_value_is_a_parameter_and_a_condition(home: Home, flow: Pipe) -> None:
    body = """
        n = Count(Make(count=count))
        Note(text="twice", number=n)
        with dt.when(n > 2):
            Make.options(id="Big")(count=n)
        with dt.otherwise(n == 2):
            Make.options(id="Two")(count=2)
        with dt.otherwise():
            Make.options(id="Small")(count=1)
    """
    for count, ran in ((3, "Big"), (2, "Two"), (0, "Small")):
        result = run_pipeline(home, flow(body), {"count": count})
        assert result.state == "COMPLETE"
        assert value(result, "Note") == f"twice None {count}"
        assert {name for name in ("Big", "Two", "Small") if result.nodes[name].state != "SKIPPED"} == {ran}
    assert result.nodes["Big"].reason == "Count > 2 is false"


def test_a_part_of_a_list_of_no_said_type_is_compared(home: Home, flow: Pipe) -> None:
    body = "n = Make(count=count)\nwith dt.when(n.parts[1] == 1):\n    Note(text='one')"
    assert states(run_pipeline(home, flow(body))) == {"Make": "COMPLETE", "Note": "COMPLETE"}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_one_of_joins_branches_and_optional_lets_nothing_stand_in(home: Home, flow: Pipe, count: int) -> None:
    body = """
        n = Make(count=count)
        with dt.when((n.total > 0) & (n.total < 3)):
            few = Make.options(id="Few")(count=10)
        with dt.otherwise():
            many = Make.options(id="Many")(count=20)
        Add(dt.one_of(few, many), dt.optional(few))
        Note(text="x", number=dt.one_of(few.total, many.total))
        Add.options(id="Needs")(few)
    """
    result = run_pipeline(home, flow(body), {"count": count})
    assert value(result, "Add") == 20
    assert value(result, "Note") == f"x None {10 if 0 < count < 3 else 20}"
    assert result.nodes["Needs"].state == ("COMPLETE" if 0 < count < 3 else "SKIPPED")
    assert result.state == "COMPLETE"


def test_one_of_nothing_is_skipped(home: Home, flow: Pipe) -> None:
    body = """
        n = Make(count=count)
        with dt.when(n.total > 5):
            a = Make.options(id="A")()
        with dt.when(n.total > 6):
            b = Make.options(id="B")()
        Add(dt.one_of(a, b))
        Add.options(id="Onward")(n, dt.optional(b))
    """
    result = run_pipeline(home, flow(body))
    assert states(result) == {
        "Make": "COMPLETE",
        "A": "SKIPPED",
        "B": "SKIPPED",
        "Add": "SKIPPED",
        "Onward": "COMPLETE",
    }


def test_a_loop_over_a_returned_list_fans_out_and_in(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            made = Make(count=item)
            return Add(made)
        parts = Start(count=count).parts
        totals = dt.map_(one, over=parts, max_parallel=2)
        Sum(totals)
        Total(values=totals.total)
    """
    result = run_pipeline(home, flow(body), {"count": 4})
    assert states(result) == dict.fromkeys(
        ["Start", *(f"{n}[{i}]" for n in ("Make", "Add") for i in range(4)), "Sum", "Total"], "COMPLETE"
    )
    assert value(result, "Sum") == value(result, "Total") == 6
    assert {result.nodes[f"Make[{i}]"].reason for i in range(4)} == {"first run"}
    again = run_pipeline(home, flow(body), {"count": 5})
    assert value(again, "Sum") == 10
    assert [again.nodes[f"Make[{i}]"].state for i in range(5)] == ["CACHED"] * 4 + ["COMPLETE"]
    empty = run_pipeline(home, flow(body), {"count": 0})
    assert states(empty) == dict.fromkeys(["Start", "Sum", "Total"], "COMPLETE")
    assert value(empty, "Sum") == 0


def test_loops_nest_and_items_fail_alone(home: Home, flow: Pipe) -> None:
    body = """
        def outer(many):
            def inner(name):
                return Note(text=name, number=many)
            notes = dt.map_(inner, over=Names(many=many), id="inner")
            return Note.options(id="Gather")(text="all", more=notes)
        gathered = dt.map_(outer, over=[0, 1, 2])
        Note.options(id="Last")(text="end", more=gathered)
    """
    result = run_pipeline(home, flow(body))
    assert result.state == "COMPLETE"
    assert {name for name in result.nodes if name.startswith("Note")} == {"Note[1,0]", "Note[2,0]", "Note[2,1]"}
    assert value(result, "Gather[2]") == "all ['n0 None 2', 'n1 None 2'] None"
    assert value(result, "Gather[0]") == "all [] None"
    assert "all ['n0 None 1'] None" in str(value(result, "Last"))


def test_an_item_that_fails_blocks_what_gathers_and_no_other_item(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            return Fails(Make(count=item["n"]), when=item["bad"])
        Sum(dt.map_(one, over=[{"n": 1, "bad": False}, {"n": 2, "bad": True}, {"n": 3, "bad": False}]))
    """
    result = run_pipeline(home, flow(body))
    assert {name: state for name, state in states(result).items() if "Make" not in name} == {
        "Fails[0]": "COMPLETE", "Fails[1]": "FAILED", "Fails[2]": "COMPLETE", "Sum": "BLOCKED",
    }  # fmt: skip
    assert result.nodes["Sum"].reason == "Fails[1] failed"
    assert result.state == "FAILED"


def test_a_branch_in_a_loop_filters_what_is_gathered(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            with dt.when(item >= 2):
                made = Make(count=item)
            return made
        Sum(dt.map_(one, over=[1, 2, 3]))
    """
    result = run_pipeline(home, flow(body))
    assert result.nodes["Make[0]"].state == "SKIPPED"
    assert value(result, "Sum") == 5


def test_a_loop_that_is_held_back_says_so_once(home: Home, flow: Pipe) -> None:
    body = """
        start = Make(count=count)
        with dt.when(start.total > 10):
            made = dt.map_(lambda item: Make.options(id="Inside")(count=item), over=start.parts)
        Sum(made)
        Sum.options(id="After")(dt.map_(lambda item: Make.options(id="In2")(count=item), over=Fails(start).parts))
    """
    result = run_pipeline(home, flow(body))
    assert states(result) == {
        "Make": "COMPLETE", "Inside": "SKIPPED", "Sum": "SKIPPED",
        "Fails": "FAILED", "In2": "BLOCKED", "After": "BLOCKED",
    }  # fmt: skip
    assert result.nodes["Inside"].reason == "Make.total > 10 is false"


def test_a_pair_of_outputs_comes_back_as_two_lists(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            both = Pair(count=item)
            return both.numbers, both.size
        numbers, sizes = dt.loops.unzip(dt.map_(one, over=[1, 2, 3]))
        Sum(numbers)
        Total(values=sizes)
    """
    result = run_pipeline(home, flow(body))
    assert (value(result, "Sum"), value(result, "Total")) == (6, 60)
