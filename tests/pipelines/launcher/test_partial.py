"""Partial runs: which nodes run, what stands in for the others; and one node alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunOptions,
    RunResult,
    Selection,
    load_pipeline,
    open_run,
    resume,
    run_pipeline,
    spin,
)

Pipe = Callable[..., PipelineFunction[..., object]]
ABC = "a = Make.options(id='a')(count=count)\nb = Use.options(id='b')(a)\nc = Use.options(id='c')(b)"
ABCD = f"{ABC}\nd = Use.options(id='d')(c)"


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def total(result: RunResult, node: str) -> int:
    return int(result.nodes[node].outputs["numbers"][0].properties["total"])


@pytest.mark.parametrize(
    ("body", "selection", "runs"),
    [
        # The cases of TFX's partial_run_utils_test, in its order.
        (ABC, Selection(first=("a",), last=("b",)), ["a", "b"]),
        (ABC, Selection(first=("c",)), ["c"]),
        (ABCD, Selection(first=("b",), last=("d",), skip=("c",)), ["b", "c", "d"]),  # c waits for what runs
        (ABCD, Selection(skip=("a", "b")), ["c", "d"]),
        (ABC, Selection(only=("b",)), ["b"]),
        (ABC, Selection(last=("b",)), ["a", "b"]),
    ],
)
def test_what_a_selection_runs(pipe: Pipe, body: str, selection: Selection, runs: list[str]) -> None:
    assert list(selection.nodes(pipe(body).build())) == runs


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        (Selection(first=("x",)), "has no node 'x'"),
        (Selection(only=("a",), last=("b",)), "cannot be combined"),
        (Selection(first=("c",), last=("a",)), "nothing is left to run"),
    ],
)
def test_a_selection_that_makes_no_sense(pipe: Pipe, selection: Selection, says: str) -> None:
    with pytest.raises(InputError, match=says):
        selection.nodes(pipe(ABC).build())


def test_what_is_not_run_comes_from_the_earlier_run(home: Home, pipe: Pipe) -> None:
    first = run_pipeline(home, pipe(ABCD), {"count": 5})
    part = run_pipeline(home, pipe(ABCD), {"count": 99}, selection=Selection(first=("c",)))
    # The parameter is new, but nothing that runs has it.
    assert states(part) == {"a": "CACHED", "b": "CACHED", "c": "CACHED", "d": "CACHED"}
    assert part.nodes["b"].reason == f"taken from run {first.run}"
    fresh = run_pipeline(home, pipe(ABCD), None, RunOptions(cache=False), selection=Selection(only=("c",)))
    assert states(fresh) == {"a": "CACHED", "b": "CACHED", "c": "COMPLETE", "d": "SKIPPED"}
    assert total(fresh, "c") == 7
    assert fresh.state == "COMPLETE"


def test_an_earlier_run_must_hold_what_is_needed(home: Home, pipe: Pipe) -> None:
    part = Selection(first=("c",))
    with pytest.raises(InputError, match="no earlier run of shop has the outputs of a, b"):
        run_pipeline(home, pipe(ABC), selection=part)
    only_a = run_pipeline(home, pipe(ABC), {"count": 1}, selection=Selection(last=("a",)))
    # That run did not make b: taking it from a still earlier one would mix what does not belong together.
    with pytest.raises(InputError, match=f"run {only_a.run} has no outputs of b"):
        run_pipeline(home, pipe(ABC), selection=Selection(first=("c",), base=only_a.run))
    whole = run_pipeline(home, pipe(ABC), {"count": 2})
    again = run_pipeline(home, pipe(ABC), selection=part)
    assert total(again, "c") == total(whole, "c")
    with pytest.raises(InputError, match="there is no run 'nowhere'"):
        run_pipeline(home, pipe(ABC), selection=Selection(first=("c",), base="nowhere"))
    other = run_pipeline(home, pipe(ABC, name="other"))
    with pytest.raises(InputError, match="belongs to the pipeline other"):
        run_pipeline(home, pipe(ABC), selection=Selection(first=("c",), base=other.run))


def test_outputs_that_are_gone_do_not_stand_in(home: Home, pipe: Pipe) -> None:
    first = run_pipeline(home, pipe(ABC))
    home.payloads.remove(first.nodes["b"].outputs["numbers"][0].uri)
    with pytest.raises(InputError, match="has no outputs of b"):
        run_pipeline(home, pipe(ABC), selection=Selection(first=("c",), base=first.run))


def test_a_partial_run_can_be_resumed_and_stood_on(home: Home, pipe: Pipe) -> None:
    body = f"{ABC}\nMisbehave.options(id='d')(c, code='import os; assert os.path.exists({{path!r}})')"
    path = str(home.base / "there")
    body = body.replace("{path!r}", repr(path)[1:-1].join(['"', '"']))
    run_pipeline(home, pipe(ABC))
    failed = run_pipeline(home, pipe(body), selection=Selection(first=("c",)))
    assert states(failed) == {"a": "CACHED", "b": "CACHED", "c": "CACHED", "d": "FAILED"}
    home.base.joinpath("there").touch()
    assert states(resume(home)) == {"a": "CACHED", "b": "CACHED", "c": "CACHED", "d": "COMPLETE"}
    on_it = run_pipeline(home, pipe(body), selection=Selection(only=("c",), base=failed.run))
    assert states(on_it)["b"] == "CACHED"


def test_items_of_a_loop_stand_in_each_for_itself(home: Home, pipe: Pipe) -> None:
    body = """
        ones = dt.map_(lambda item: Make(count=item), over=[1, 2, 3])
        with dt.on_exit():
            Make.options(id="Exit")(count=1)
        Gather(ones)
    """
    parts = PARTS_MORE
    run_pipeline(home, pipe(body, parts=parts))
    part = run_pipeline(home, pipe(body, parts=parts), selection=Selection(only=("Gather",)))
    assert states(part) == {
        "Make[0]": "CACHED", "Make[1]": "CACHED", "Make[2]": "CACHED", "Gather": "CACHED", "Exit": "COMPLETE"
    }  # fmt: skip
    assert part.nodes["Make[1]"].reason.startswith("taken from run")


def test_another_item_of_the_earlier_run_does_not_stand_in(home: Home, pipe: Pipe) -> None:
    body = """
        inner = lambda item: dt.map_(lambda number: Make(count=number), over=item, id="inner")
        Gather.options(id="All")(dt.map_(lambda item: Gather(inner(item), times=item[0]), over=items))
    """
    shop = pipe(body, parts=PARTS_MORE)
    (shop.project / "pipeline.py").write_text(
        (shop.project / "pipeline.py").read_text().replace("count: int = 3", "items: list[list[int]]")
    )
    shop = load_pipeline(shop.project)
    one, two = [1, 2], [3]
    first = run_pipeline(home, shop, {"items": [one, two]})
    again = run_pipeline(home, shop, {"items": [one, two]}, selection=Selection(first=("Gather",)))
    assert total(again, "All") == total(first, "All") == 12
    turned = run_pipeline(home, shop, {"items": [two, one]}, selection=Selection(first=("Gather",)))
    assert states(turned) == {
        "Make[0,0]": "FAILED", "Make[1,0]": "FAILED", "Make[1,1]": "FAILED",
        "Gather[0]": "BLOCKED", "Gather[1]": "BLOCKED", "All": "BLOCKED",
    }  # fmt: skip
    reason = turned.nodes["Make[0,0]"].reason
    assert reason.startswith(f"Make[0,0] of run {again.run} is of the item [1, 2], and here that is [3]")
    longer = run_pipeline(
        home, shop, {"items": [one, two, one]}, selection=Selection(first=("Gather",), base=first.run)
    )
    assert longer.nodes["Gather[1]"].state == "CACHED"
    assert "has no outputs of Make[2,0]" in longer.nodes["Make[2,0]"].reason


PARTS_MORE = """
    import drivetrain as dt

    class Numbers(dt.Artifact):
        total: int = 0

    @dt.component
    def Make(*, count: int = 3) -> Numbers:
        numbers = Numbers.new(total=count)
        (numbers.content / "total.txt").write_text(str(count))
        return numbers

    @dt.component
    def Gather(numbers: list[Numbers], *, times: int = 1) -> Numbers:
        return Make.fn(count=times * sum(one.total for one in numbers))

    @dt.component
    def Divide(numbers: Numbers, *, by: int = 1) -> int:
        return numbers.total // by
"""


def test_spin_calls_one_node_with_todays_code_and_records_nothing(home: Home, pipe: Pipe) -> None:
    body = "Divide(Gather(dt.map_(lambda item: Make(count=item), over=[1, 2, count])), by=2)"
    result = run_pipeline(home, pipe(body, parts=PARTS_MORE), {"count": 7})
    before = (len(home.store.executions()), len(home.store.artifacts()))
    run = open_run(home, result.run)
    same = spin(home, run, pipe(body, parts=PARTS_MORE), "Gather")
    assert same.fingerprints == same.before
    edited = PARTS_MORE.replace("sum(", "10 * sum(")
    changed = spin(home, run, pipe(body, parts=edited), "Gather", parameters={"times": 2})
    assert changed.outputs["numbers"].properties["total"] == 200
    assert changed.fingerprints != changed.before
    assert spin(home, run, pipe(body, parts=edited), "Make[2]").outputs["numbers"].properties["total"] == 7
    assert spin(home, run, pipe(body, parts=edited), "Divide").outputs["value"].properties["value"] == 5
    assert (len(home.store.executions()), len(home.store.artifacts())) == before
    assert home.payloads.staging.exists() is False or list(home.payloads.staging.iterdir()) == []


def test_spin_takes_another_function_of_the_project(home: Home, pipe: Pipe) -> None:
    parts = """
        import drivetrain as dt
        from drivetrain.pipelines import Fn, load

        @dt.component
        def Call(*, fn: Fn) -> int:
            return load(fn)()
    """
    ways = "def one():\n    return 1\n\ndef two():\n    return 2\n"
    made = pipe("Call(fn='ways:one')", parts=parts, ways=ways)
    run = open_run(home, run_pipeline(home, made).run)
    assert spin(home, run, made, "Call").outputs["value"].properties["value"] == 1
    assert spin(home, run, made, "Call", parameters={"fn": "ways:two"}).outputs["value"].properties["value"] == 2
    with pytest.raises(BuildError, match="there is no module 'wegs'"):
        spin(home, run, made, "Call", parameters={"fn": "wegs:two"})


def test_spin_stops_where_the_component_fails(home: Home, pipe: Pipe) -> None:
    body = "Divide(Make(count=count), by=1)"
    result = run_pipeline(home, pipe(body, parts=PARTS_MORE), {"count": 7})
    seen: list[str] = []
    with pytest.raises(ZeroDivisionError):
        spin(
            home,
            open_run(home, result.run),
            pipe(body, parts=PARTS_MORE),
            "Divide",
            parameters={"by": 0},
            trap=lambda: seen.append("stopped"),
        )
    assert seen == ["stopped"]
    with pytest.raises(InputError, match="no parameter 'buy'"):
        spin(home, open_run(home, result.run), pipe(body, parts=PARTS_MORE), "Divide", parameters={"buy": 0})
