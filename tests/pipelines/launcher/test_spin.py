"""`spin` of nodes with an environment, of loops, of nodes that a person decides."""

from __future__ import annotations

import os

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, RunOptions, decide, open_run, run_pipeline, spin
from drivetrain.tests.pipelines.flows import Pipe, flows


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


def test_a_node_gets_its_environment(home: Home, flow: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPUN_TOKEN", "twelve chars")
    monkeypatch.setenv("CONFORMANCE_TOTAL", "mine")
    body = """
        some = Make(count=count)
        env = {"CONFORMANCE_TOTAL": some.total, "CONFORMANCE_SECRET": dt.secret("SPUN_TOKEN")}
        Variable.options(env=env)()
        dt.map_(lambda each: Variable.options(id="Each", env={"CONFORMANCE_TOTAL": each})(), over=["a", "b"])
    """
    function = flow(body)
    result = run_pipeline(home, function, {"count": 5}, RunOptions(runner="process"))
    for node, text in {"Variable": "5 12", "Each[1]": "b 0"}.items():
        spun = spin(home, open_run(home, result.run), function, node)
        assert spun.outputs["value"].properties["value"] == text
        assert spun.fingerprints == spun.before
    assert os.environ["CONFORMANCE_TOTAL"] == "mine"
    assert "CONFORMANCE_SECRET" not in os.environ


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("Double", "Double is a node of a loop"),
        ("Double[2]", "Double[2] is not one of Double's items in run"),
        ("Double[0,0]", "Double[0,0] is not one of Double's items in run"),
        ("Double[-1]", "Double[-1] is not one of Double's items in run"),
        ("Sum[0]", "Sum[0] is not one of Sum's items in run"),
        ("Deep[1]", "Deep[1] is not one of Deep's items in run"),
        ("Deep[1,1]", "Deep[1,1] is not one of Deep's items in run"),
    ],
)
def test_an_item_that_the_run_did_not_have(home: Home, flow: Pipe, node: str, says: str) -> None:
    body = """
        def one(each):
            some = Make(count=each)
            dt.map_(lambda part: Make.options(id="Deep")(count=part), over=some.parts)
            return Double(some)
        Sum(dt.map_(one, over=[2, 1]))
    """
    function = flow(body)
    run = open_run(home, run_pipeline(home, function).run)
    assert spin(home, run, function, "Deep[0,1]").outputs["numbers"].properties["total"] == 1
    with pytest.raises(InputError) as caught:
        spin(home, run, function, node)
    assert says in str(caught.value)
    assert f"name e.g. {node.partition('[')[0]}" in str(caught.value)


ASKS = """
    from drivetrain.components import Approval

"""


def test_a_node_that_a_person_decides(home: Home, flow: Pipe) -> None:
    function = flow("Approval(Make(), wait=0.01)", ASKS)
    result = run_pipeline(home, function)
    assert result.nodes["Approval"].state == "FAILED"
    run = open_run(home, result.run)
    with pytest.raises(InputError, match="nobody has decided Approval of run"):
        spin(home, run, function, "Approval")
    decide(home, run, "Approval", approved=False, by="ada", comment="no")
    spun = spin(home, run, function, "Approval").outputs["decision"]
    assert (spun.properties["approved"], spun.properties["by"]) == (False, "ada")


def test_what_only_todays_code_asks_is_not_kept_with_the_run(home: Home, flow: Pipe) -> None:
    run_pipeline(home, flow("Make(count=count)"), {"count": 1})
    result = run_pipeline(home, flow("Compare(Make(count=count))"), {"count": 2})
    run = open_run(home, result.run)
    asked = len(home.store.contexts("answer", limit=None))
    changed = flow("Compare(Make(count=count), dt.latest(Numbers, node='Make'))")
    assert spin(home, run, changed, "Compare").outputs["value"].properties["value"] == "1 -> 2"
    assert len(home.store.contexts("answer", limit=None)) == asked
    again = run_pipeline(home, changed, {"count": 3})
    before = len(home.store.contexts("answer", limit=None))
    assert (
        spin(home, open_run(home, again.run), changed, "Compare").before
        == spin(home, open_run(home, again.run), changed, "Compare").fingerprints
    )
    assert len(home.store.contexts("answer", limit=None)) == before == asked + 1
