"""Who waits for whom on KFP, and what may be left unstarted there: only what takes with it what is skipped with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.pipelines.ir.ir import Edge, Loop, Node, Pipeline
from drivetrain.pipelines.kubeflow.plan import Plan, PlannedTask, kubernetes_name, plan
from drivetrain.tests.pipelines.kubeflow.cluster import built

Project = Callable[..., Path]


def planned(project: Project, source: str) -> Plan:
    pipeline = built(project, source).build()
    return plan(pipeline, {name: "bool" for name, hint, _ in pipeline.parameters if hint == "bool"})


def tasks(found: Plan) -> dict[str, PlannedTask]:
    return {task.name: task for task in found.walk()}


def order(found: tuple[PlannedTask, ...]) -> None:
    """Every task comes after all that it waits for, in every DAG."""
    seen: set[str] = set()
    for task in found:
        assert set(task.after) <= seen
        seen.add(task.name)
        order(task.inside)


@pytest.mark.parametrize(
    ("consumer", "pruned"),
    [
        ("Double.options(id='Next')(made)", True),
        ("Add(other, made)", True),
        ("Add(other, dt.optional(made))", False),
        ("Count(dt.one_of(made, other))", False),
        ("Note.options(after=[made])(text='x')", False),
        ("Note(text='x', number=dt.optional(made.total))", False),
        ("Note(text='x', number=made.total)", True),
        ("Note.options(after=[Double.options(id='Next')(made)])(text='x')", False),
        ("dt.map_(lambda n: Double.options(id='In')(made), over=[1])", True),
        ("dt.map_(lambda n: Make.options(id='In')(count=n), over=made.parts)", True),
        ("Sum(dt.map_(lambda n: Make.options(id='In')(count=n), over=made.parts))", True),
        ("Sum(dt.map_(lambda n: Add.options(id='In')(made), over=[1]))", False),
    ],
)
def test_a_condition_stands_where_all_that_kfp_leaves_out_is_skipped(
    project: Project, consumer: str, pruned: bool
) -> None:
    nodes_planned = planned(
        project,
        f"""
        @dt.pipeline
        def shop(big: bool = True) -> None:
            other = Make.options(id="Other")()
            with dt.when(big):
                made = Make()
            {consumer}
        """,
    )
    order(nodes_planned.work)
    assert bool(tasks(nodes_planned)["make"].conditions) is pruned


def test_what_waits_for_a_loop_that_is_held_back_is_left_out_with_it(project: Project) -> None:
    source = """
        @dt.pipeline
        def shop(big: bool = True) -> None:
            start = Make.options(id="Start")()
            with dt.when(big):
                made = dt.map_(lambda n: Make(count=n), over=start.parts)
            Sum({})
    """
    gathered = tasks(planned(project, source.format("made")))
    assert gathered["open-map"].conditions
    assert not gathered["make"].conditions  # there is no item to hold it against
    assert gathered["for-map"].after == ("open-map", "start")
    assert tasks(planned(project, source.format("dt.optional(made)")))["open-map"].conditions == ()


def test_a_literal_loop_has_its_condition_itself(project: Project) -> None:
    found = tasks(
        planned(
            project,
            """
            @dt.pipeline
            def shop(big: bool = True) -> None:
                with dt.when(big):
                    made = dt.map_(lambda n: Make(count=n), over=[1, 2])
                Sum(dt.optional(made))
            """,
        )
    )
    assert found["for-map"].conditions == ({"$param": "big"},)
    assert found["for-map"].count == 2
    assert not found["for-map"].opened


def node(name: str, *edges: Edge, loop: str = "", **more: Any) -> Node:
    inputs = tuple((f"in{number}", (edge,)) for number, edge in enumerate(edges))
    return Node(name, "shop:Part", None, inputs, (), (("out", "Numbers"),), loop=loop, **more)


def test_a_loop_is_cut_where_something_outside_stands_between() -> None:
    # As a gate over all that a loop makes, before what the same loop does with it.
    nodes = (
        node("A", loop="each"),
        node("Check", Edge("A", "out"), gates="in0"),
        node("B", Edge("A", "out"), loop="each", after=("Check",)),
        node("Last", Edge("B", "out")),
    )
    found = plan(Pipeline("shop", (), nodes, (Loop("each", {"$param": "items"}),)), {})
    order(found.work)
    assert [(task.name, task.after) for task in found.work] == [
        ("open-each", ()),
        ("for-each", ("open-each",)),
        ("check", ("for-each",)),
        ("for-each-2", ("check", "for-each", "open-each")),
        ("last", ("for-each-2",)),
    ]
    assert tasks(found)["b"].gates == ("Check",)


def test_loops_between_each_other_are_cut_and_one_that_bounds_its_items_is_not() -> None:
    nodes = (
        node("A", loop="free"),
        node("B", Edge("A", "out"), loop="bound"),
        node("C", loop="bound"),
        node("D", Edge("C", "out"), loop="free"),
    )
    loops = (Loop("free", [1]), Loop("bound", [1], parallel=1))
    found = plan(Pipeline("shop", (), nodes, loops), {})
    order(found.work)
    assert [(task.name, [each.id for each in task.inside]) for task in found.work] == [
        ("for-free", ["A"]),
        ("for-bound", ["B", "C"]),
        ("for-free-2", ["D"]),
    ]


def test_gates_stand_where_their_word_is_known(project: Project) -> None:
    found = tasks(
        planned(
            project,
            """
            @dt.pipeline
            def shop() -> None:
                made = Make()
                Check(made)
                Double(made)
                dt.map_(lambda n: Add(made, Make.options(id="In")(count=n)), over=[1])
            """,
        )
    )
    assert found["double"].gates == ("Check",)
    assert found["add"].gates == ("Check",)
    assert found["in"].gates == found["for-map"].gates == ()
    assert "check" in found["for-map"].after


def test_names_are_kubernetes_names_and_differ(project: Project) -> None:
    nodes_planned = planned(
        project,
        """
        @dt.pipeline
        def shop() -> None:
            Make.options(id="A_b")()
            Make.options(id="a.B")()
            Make.options(id="Work")()
            Make.options(id="X")()
            Make.options(id="X-driver")()
            Make.options(id="L" * 90)()
            Make.options(id="L" * 91)()
        """,
    )
    names = [task.name for task in nodes_planned.work]
    assert names[:2] == ["a-b", "a-b-2"]
    assert not {"work", "x-driver"} & set(names)
    assert len(set(names)) == 7
    assert all(len(name) <= 50 for name in names)
    assert kubernetes_name("--Größe!") == "gr-e"


def test_what_runs_on_exit_stands_apart(project: Project) -> None:
    nodes_planned = planned(
        project,
        """
        @dt.pipeline
        def shop() -> None:
            made = Make()
            with dt.on_exit() as run:
                Note(text=run.state, number=dt.optional(made.total))
        """,
    )
    assert [task.id for task in nodes_planned.work] == ["Make"]
    assert [(task.id, task.after, task.conditions) for task in nodes_planned.exits] == [("Note", (), ())]
