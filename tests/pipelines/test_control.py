"""Gates, conditions and choices from history: what runs, what is held back, which model is the baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import BuildError
from drivetrain.metadata import ArtifactRecord
from drivetrain.pipelines import Home, PipelineFunction, RunResult, run_pipeline

Pipe = Callable[..., PipelineFunction[..., object]]


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def test_a_veto_holds_when_it_comes_from_the_cache(home: Home, pipe: Pipe) -> None:
    function = pipe("n = Make()\nUse(n)\nCheck(n, limit=2)")
    assert states(run_pipeline(home, function)) == {"Make": "COMPLETE", "Check": "COMPLETE", "Use": "BLOCKED"}
    again = run_pipeline(home, function)
    assert states(again) == {"Make": "CACHED", "Check": "CACHED", "Use": "BLOCKED"}
    assert again.state == "STOPPED"


def test_a_gate_that_failed_holds_back_too(home: Home, pipe: Pipe) -> None:
    result = run_pipeline(home, pipe('n = Make()\nUse(n)\nCheck(n, code="1 / 0")'))
    assert states(result) == {"Make": "COMPLETE", "Check": "FAILED", "Use": "BLOCKED"}
    assert result.nodes["Use"].reason == "Check failed"


def test_a_gate_under_a_condition_that_is_false_does_not_object(home: Home, pipe: Pipe) -> None:
    body = "n = Make(good=False)\nwith dt.when(n.good):\n    Check(n, limit=2)\nUse(n)"
    result = run_pipeline(home, pipe(body))
    assert states(result) == {"Make": "COMPLETE", "Check": "SKIPPED", "Use": "COMPLETE"}
    assert result.state == "COMPLETE"
    asked = run_pipeline(home, pipe(body.replace("good=False", "good=True")))
    assert states(asked) == {"Make": "COMPLETE", "Check": "COMPLETE", "Use": "BLOCKED"}


def test_what_uses_a_skipped_gates_output_is_skipped(home: Home, pipe: Pipe) -> None:
    body = """
        n = Make(good=False)
        with dt.when(n.good):
            v = Check(n)
        with dt.when(v.passed):
            Use(n)
    """
    assert states(run_pipeline(home, pipe(body))) == {"Make": "COMPLETE", "Check": "SKIPPED", "Use": "SKIPPED"}


@pytest.mark.parametrize(("outer", "inner"), [(True, True), (True, False), (False, True), (False, False)])
def test_nested_conditions_must_all_hold(home: Home, pipe: Pipe, outer: bool, inner: bool) -> None:
    body = f"""
        a = Make(good={outer})
        with dt.when(a.good):
            b = Make.options(id="B")(good={inner}, count=2)
            with dt.when(b.good):
                Use(b)
        Use.options(id="Outside")(a)
    """
    result = run_pipeline(home, pipe(body))
    assert result.nodes["B"].state == ("COMPLETE" if outer else "SKIPPED")
    assert result.nodes["Use"].state == ("COMPLETE" if outer and inner else "SKIPPED")
    assert result.nodes["Outside"].state == "COMPLETE"


def test_a_property_is_a_parameter_of_what_follows(home: Home, pipe: Pipe, tmp_path: Path) -> None:
    data = tmp_path / "more.txt"
    data.write_text("10")
    function = pipe(f"n = Make(count=4, label={str(data)!r})\nUse(n, amount=n.total, data=n.label)")
    result = run_pipeline(home, function)
    assert result.nodes["Use"].outputs["numbers"][0].properties["total"] == 18
    data.write_text("20")  # a file named by a property counts by its content, as any other
    result = run_pipeline(home, function)
    assert states(result) == {"Make": "CACHED", "Use": "COMPLETE"}
    assert result.nodes["Use"].outputs["numbers"][0].properties["total"] == 28


GRADES = """
    import drivetrain as dt
    from drivetrain.metadata import Evaluation

    @dt.component
    def Grade(*, count: int) -> Evaluation:
        evaluation = Evaluation.new(metrics={"auc": count / 10})
        (evaluation.content / "auc.txt").write_text(str(count))
        return evaluation

    @dt.component
    def Use(*, amount: float) -> float:
        return amount
"""


@pytest.mark.parametrize(("count", "end"), [(9, "COMPLETE"), (8, "SKIPPED")])
def test_a_metric_is_a_condition_and_a_parameter(home: Home, pipe: Pipe, count: int, end: str) -> None:
    body = """
        evaluation = Grade(count=count)
        with dt.when(evaluation.metrics["auc"] > 0.8):
            Use(amount=evaluation.metrics["auc"])
    """
    result = run_pipeline(home, pipe(body, parts=GRADES), {"count": count})
    assert result.nodes["Use"].state == end
    if end == "COMPLETE":
        assert result.nodes["Use"].outputs["value"][0].properties["value"] == 0.9


# -- latest and latest_blessed

MODELS = """
    from __future__ import annotations
    import drivetrain as dt
    from drivetrain.metadata import Evaluation, Model

    @dt.component
    def Train(*, weight: int) -> Model:
        model = Model.new()
        (model.content / "weight.txt").write_text(str(weight))
        return model

    @dt.component
    def Evaluate(model: Model, baseline: Model | None = None, *, blessed: bool = True) -> Evaluation:
        text = "none" if baseline is None else (baseline.content / "weight.txt").read_text()
        evaluation = Evaluation.new(blessed=blessed, summary=text)
        (evaluation.content / "baseline.txt").write_text(text)
        return evaluation

    @dt.component
    def Continue(model: Model | None = None) -> Model:
        return Train.fn(weight=int((model.content / "weight.txt").read_text()) + 1 if model else 0)
"""


def judge(home: Home, pipe: Pipe, weight: int, blessed: bool = True, name: str = "shop") -> tuple[dict[str, str], str]:
    body = f"Evaluate(Train(weight=count), dt.latest_blessed(), blessed={blessed})"
    result = run_pipeline(home, pipe(body, name=name, parts=MODELS), {"count": weight})
    return states(result), str(result.nodes["Evaluate"].outputs["evaluation"][0].properties["summary"])


NEW = {"Train": "COMPLETE", "Evaluate": "COMPLETE"}
OLD = {"Train": "CACHED", "Evaluate": "CACHED"}


def test_the_baseline_is_the_newest_blessed_model_but_never_the_candidate(home: Home, pipe: Pipe) -> None:
    assert judge(home, pipe, 1) == (NEW, "none")
    assert judge(home, pipe, 1) == (OLD, "none")  # its own blessing does not make it its own baseline
    assert judge(home, pipe, 2, blessed=False) == (NEW, "1")
    assert judge(home, pipe, 3) == (NEW, "1")  # 2 was not blessed
    assert judge(home, pipe, 3) == (OLD, "1")
    assert judge(home, pipe, 4) == (NEW, "3")


def test_a_deleted_model_is_no_baseline(home: Home, pipe: Pipe) -> None:
    judge(home, pipe, 1)
    judge(home, pipe, 2)
    newest = home.store.artifacts(type="Model")[0]
    home.store.update_artifact(newest, state="DELETED")
    assert judge(home, pipe, 3) == (NEW, "1")


def test_two_pipelines_in_one_root_do_not_mix(home: Home, pipe: Pipe) -> None:
    judge(home, pipe, 1)
    assert judge(home, pipe, 2, name="other") == (NEW, "none")
    assert judge(home, pipe, 3) == (NEW, "1")


def test_latest_is_what_an_earlier_run_made(home: Home, pipe: Pipe) -> None:
    body = "Continue(dt.latest(Model))\nTrain(weight=count)"
    texts = []
    for weight in (7, 8, 9):
        result = run_pipeline(home, pipe(body, parts=MODELS), {"count": weight})
        record = result.nodes["Continue"].outputs["model"][0]
        texts.append((home.payloads.local(record.uri) / "content" / "weight.txt").read_text())
    # Train and Continue run at once: what this run makes is never a choice, whichever ends first.
    assert texts[0] == "0"
    assert all(text in ("1", "2", "8", "9") for text in texts[1:])  # whichever branch of the earlier run ended last
    chosen = [home.store.inputs(e)["model"][0] for e in home.store.executions(component="parts:Continue")[:2]]
    for execution, model in zip(home.store.executions(component="parts:Continue")[:2], chosen, strict=True):
        ours, theirs = ([c.id for c in home.store.contexts_of(r) if c.type == "run"] for r in (execution, model))
        assert ours != theirs


def test_latest_of_one_node(home: Home, pipe: Pipe) -> None:
    body = """
        Train.options(id="First")(weight=count)
        Train.options(id="Second")(weight=7)
        Continue.options(id="AfterFirst")(dt.latest(Model, node="First"))
        Continue.options(id="AfterSecond")(dt.latest(Model, node="Second", passed=True))
    """
    seen = []
    for weight in (3, 5, 9):
        result = run_pipeline(home, pipe(body, parts=MODELS), {"count": weight})
        seen += [text_of(home, result.nodes[node].outputs["model"][0]) for node in ("AfterFirst", "AfterSecond")]
    assert seen == ["0", "0", "4", "8", "6", "8"]


def test_latest_is_not_what_this_run_takes_from_the_cache_of_another_pipeline(home: Home, pipe: Pipe) -> None:
    parts = f"""{MODELS}
    @dt.component
    def ContinueOnce(model: Model | None, *, blessed: bool) -> Model:
        return Continue.fn(model)
    """
    run_pipeline(home, pipe("Train(weight=count)", name="other", parts=parts), {"count": 7})
    body = "new = Train(weight=count)\nContinueOnce(dt.latest(Model, node='Train'), blessed=Evaluate(new).blessed)"
    result = run_pipeline(home, pipe(body, parts=parts), {"count": 7})
    assert states(result)["Train"] == "CACHED"  # before ContinueOnce looks, which waits for what Evaluate says of it
    assert text_of(home, result.nodes["ContinueOnce"].outputs["model"][0]) == "0"


def text_of(home: Home, model: ArtifactRecord) -> str:
    return (home.payloads.local(model.uri) / "content" / "weight.txt").read_text()


def test_latest_is_never_what_the_component_gets_anyway(home: Home, pipe: Pipe) -> None:
    parts = f"""{MODELS}
    @dt.component
    def Compare(model: Model, *, other: Model | None = None) -> Evaluation:
        return Evaluate.fn(model, other)
    """
    seen = []
    for weight in (1, 1, 2, 2, 1):
        result = run_pipeline(
            home, pipe("Compare(Train(weight=count), other=dt.latest(Model))", parts=parts), {"count": weight}
        )
        node = result.nodes["Compare"]
        seen.append((node.state, node.outputs["evaluation"][0].properties["summary"]))
    # The second run on the same data compares with what the first one compared with, not with itself.
    first, second = ("COMPLETE", "none"), ("COMPLETE", "1")
    assert seen == [first, ("CACHED", "none"), second, ("CACHED", "1"), ("COMPLETE", "2")]


def test_latest_passed_is_of_a_run_in_which_nothing_was_held_back(home: Home, pipe: Pipe) -> None:
    parts = f"""{MODELS}
    class Verdict(dt.Artifact):
        passed: bool = True

    @dt.component(gates="model")
    def Judge(model: Model, *, limit: int) -> Verdict:
        return Verdict.new(passed=int((model.content / "weight.txt").read_text()) <= limit)

    @dt.component
    def Compare(model: Model, *, other: Model | None = None) -> Evaluation:
        return Evaluate.fn(model, other)
    """
    seen = []
    for weight, limit in ((1, 5), (9, 5), (2, 5), (9, 10), (3, 10)):
        body = (
            f"new = Train(weight=count)\nJudge(new, limit={limit})\nCompare(new, other=dt.latest(Model, passed=True))"
        )
        result = run_pipeline(home, pipe(body, parts=parts), {"count": weight})
        outputs = result.nodes["Compare"].outputs
        seen.append((result.state, outputs["evaluation"][0].properties["summary"] if outputs else ""))
    # 9 counts once a person let it pass, although it then came from the cache.
    complete = [("COMPLETE", "1"), ("COMPLETE", "2"), ("COMPLETE", "9")]
    assert seen == [("COMPLETE", "none"), ("STOPPED", ""), *complete]


def test_a_baseline_needs_a_candidate_of_that_name(home: Home, pipe: Pipe) -> None:
    with pytest.raises(BuildError, match=r"latest_blessed.*\n.*takes dt.resolvers.latest_model\('blessed'\)"):
        pipe("Continue(dt.latest_blessed())", parts=MODELS.replace("model: Model | None", "warm: Model | None")).build()
    with pytest.raises(BuildError, match=r"latest_blessed.*\n.*give the candidate to 'model'"):
        pipe("Continue(dt.latest_blessed())", parts=MODELS).build()
