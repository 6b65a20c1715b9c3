"""Artifacts by property, and models by what they were trained on and how far they came."""

from __future__ import annotations

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines import (
    Home,
    run_pipeline,
)
from drivetrain.tests.pipelines.history import PARTS, Pipe, history, value


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return history(pipe)


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


def test_artifacts_by_their_metrics(home: Home, shop: Pipe) -> None:
    for name, metrics in (("a", {"auc": 0.5}), ("b", {"auc": 0.9, "val.loss": 1.0}), ("c", {})):
        run_pipeline(home, shop(f"Grade(metrics={metrics}, name={name!r})"))
    asked = {
        "{'metrics.auc': ('>=', 0.5)}": ["b", "a"],
        "{'metrics.auc': 0.9}": ["b"],
        "{'metrics.auc': ('!=', 0.9)}": ["c", "a"],
        "{'metrics.val.loss': ('<', 2), 'name': 'b'}": ["b"],
        "{'metrics.recall': ('>', 0)}": [],
    }
    for where, names in asked.items():
        result = run_pipeline(home, shop(f"Grades(dt.artifact(Graded, where={where}, count=9))"))
        assert value(result, "Grades") == names, where


def test_artifacts_by_the_metrics_of_the_work_that_made_them(home: Home, shop: Pipe) -> None:
    for name, loss in (("a", "0.5"), ("b", "0.2"), ("c", "nan")):
        run_pipeline(home, shop(f"Measure(loss={loss!r}, name={name!r})"))
    for where, names in {"('<', 0.4)": ["b"], "('<=', 0.5)": ["b", "a"], "('!=', 0.5)": ["c", "b"]}.items():
        body = f"Names(dt.artifact(Score, where={{'metrics.loss': {where}}}, count=9))"
        assert value(run_pipeline(home, shop(body)), "Names") == names, where


# -- by lineage


def test_the_newest_model_that_has_not_seen_a_span(home: Home, shop: Pipe) -> None:
    train = "Train(dt.resolvers.rolling(Load(span=count), 2, min_spans=1), rate={rate})"
    for span in (1, 2, 3):
        run_pipeline(home, shop(train.format(rate=1)), {"count": span})
    body = "Model_(dt.resolvers.newest_model_not_trained_on(Load(span=count)))"
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
    result = run_pipeline(
        home, shop("Model_(dt.resolvers.newest_model_not_trained_on(Rows(span=2)))", parts=PARTS + more)
    )
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
    asked = "Model_(dt.resolvers.newest_model_not_trained_on(Load(span=count)))"
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
    asked = "\n".join(
        f"Model_.options(id='{p}')(dt.resolvers.latest_model('{p}'))" for p in ("exported", "blessed", "pushed")
    )
    result = run_pipeline(home, shop(asked))
    assert [value(result, policy) for policy in ("exported", "blessed", "pushed")] == [
        "[(4, None, 1)]", "[(2, None, 1)]", "[(1, None, 1)]",
    ]  # fmt: skip


def test_what_another_pipeline_made(home: Home, shop: Pipe) -> None:
    """An evaluation and a push in a pipeline of their own, of what a first one trained."""
    for span in (1, 2, 3):
        body = (
            f"model = Train([Load(span=count)])\nJudge(model, blessed={span != 3})\nRate(auc=0.{span}, name='{span}')"
        )
        run_pipeline(home, shop(body), {"count": span})
    body = """
        Train([Load(span=9)])
        Model_(dt.latest(Model, pipeline="shop", node="Train"))
        Model_.options(id="Blessed")(dt.resolvers.latest_model("blessed", pipeline="shop"))
        Names(dt.artifact(Score, where={"auc": (">", 0.1)}, pipeline="shop", count=5))
        Model_.options(id="Own")(dt.latest(Model))
        Model_.options(id="Nobodys")(dt.latest(Model, pipeline="nobody"))
    """
    result = run_pipeline(home, shop(body, name="serve"))
    assert {name: value(result, name) for name in ("Model_", "Blessed", "Names", "Own", "Nobodys")} == {
        "Model_": "[(3, None, 1)]", "Blessed": "[(2, None, 1)]", "Names": ["3", "2"], "Own": "none", "Nobodys": "none",
    }  # fmt: skip
    again = run_pipeline(home, shop(body, name="serve"))
    assert (again.nodes["Model_"].state, value(again, "Own")) == ("CACHED", "[(9, None, 1)]")
    # What it asks is part of the IR, which says nothing new of pipelines that do not.
    assert '"pipeline"' not in shop("Model_(dt.latest(Model))").build().to_json()
    with pytest.raises(BuildError, match=r"dt\.latest: pipeline is ''"):
        shop("Model_(dt.latest(Model, pipeline=''))").build()
