"""Choices from history as they are built: their types, what is wrong, the IR."""

from __future__ import annotations

from typing import assert_type

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError
from drivetrain.metadata import Examples, Model, Statistics
from drivetrain.pipelines import (
    Pipeline,
)
from drivetrain.tests.pipelines.history import Pipe, history


@pytest.fixture
def shop(pipe: Pipe) -> Pipe:
    return history(pipe)


def test_a_type_checker_knows_what_is_found() -> None:
    """mypy checks these lines with the rest of the tests; none of them is called outside a pipeline."""

    def wired(examples: Examples, months: list[Examples]) -> None:
        assert_type(dt.resolvers.rolling(examples, 3), list[Examples])
        assert_type(dt.resolvers.rolling(months, 3), list[Examples])
        assert_type(dt.resolvers.all_spans(Statistics), list[Statistics])
        assert_type(dt.resolvers.previous(examples), Examples | None)
        assert_type(dt.latest(Examples), Examples | None)
        assert_type(dt.latest(Examples, count=2), list[Examples])
        assert_type(dt.artifact(Statistics, where={"span": 1}), Statistics | None)
        assert_type(dt.resolvers.latest_model("pushed"), Model | None)
        assert_type(dt.resolvers.newest_model_not_trained_on(examples), Model | None)
        assert_type(dt.loops.sliding(months, 2), list[list[Examples]])
        assert_type(dt.loops.spans("{SPAN}"), list[int])

    with pytest.raises(BuildError, match=r"dt\.resolvers\.rolling takes a component's output"):
        wired(Examples.new(), [])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("Show(dt.resolvers.rolling(Load(span=1), 0))", "n is 0"),
        ("Show(dt.resolvers.rolling(Load(span=1), 2, skip=-1))", "skip is -1"),
        ("Show(dt.resolvers.rolling(3, 2))", "takes a component's output or an artifact type, not 3"),
        ("Show(dt.resolvers.rolling(Load(span=1), 2, node='Load'))", "node= is for a type"),
        ("Show(dt.resolvers.rolling(Examples, 2, before=True))", "a type has no span to be before"),
        ("One(dt.resolvers.previous(Examples))", "takes a component's output"),
        ("Show(dt.resolvers.rolling(Model, 2))", "Model has no property 'span'"),
        (
            "One(dt.resolvers.rolling(Load(span=1), 2))",
            "takes one Examples, and dt.resolvers.rolling(...) finds a list",
        ),
        ("Train(dt.resolvers.rolling(Statistics, 2))", "takes Examples, not Statistics"),
        ("Show(dt.resolvers.rolling(Examples, 2, node='Lod'))\nLoad(span=1)", "did you mean 'Load'"),
        ("Count(dt.latest(Examples))", "must be given, and dt.latest(...) may find nothing"),
        ("One(dt.latest(Examples, count=2))", "finds a list"),
        ("Show(dt.latest(Examples, count=0))", "count is 0"),
        ("Model_(dt.latest(Model, by='version'))", "Model has no property 'span'"),
        ("One(dt.latest(Examples, by='size'))", "by='size'"),
        ("One(dt.artifact(Examples, where={'spam': 1}))", "Examples has no property 'spam'"),
        ("One(dt.artifact(Examples, where={'spam.train': 1}))", "Examples has no property 'spam'"),
        ("One(dt.artifact(Examples, where={'span.train': 1}))", "Examples.span is not a mapping, and has no entry"),
        ("One(dt.artifact(Examples, where={'span': ('~', 1)}))", "is compared by '~'"),
        ("One(dt.artifact(Examples, where={'span': ('in', 'abc')}))", "give a list"),
        ("Model_(dt.resolvers.latest_model('famous'))", "there is no policy 'famous'"),
        ("Model_(dt.resolvers.newest_model_not_trained_on(Train([Load(span=1)])))", "Model has no property 'span'"),
        ("dt.loops.sliding(dt.resolvers.all_spans(Examples), 2, node='Load')", "is chosen already"),
        (
            "dt.loops.sliding(dt.map_(lambda span: Train([Load(span=span)]), over=[1, 2]), 2)",
            "dt.loops.sliding: Model has no property 'span'",
        ),
        ("dt.loops.sequential(dt.latest(Model, count=3), 2)", "dt.loops.sequential: Model has no property 'span'"),
        ("dt.loops.spans('{SPAN}', id='Load')\nLoad(span=1)", "there already is a node 'Load'"),
        ("dt.loops.paired({'a': Examples})", "takes two names, not 1"),
        ("dt.loops.splits(Count(Load(span=1)))", "dt.loops.splits: Statistics has no property 'rows'"),
        ("dt.loops.splits(Examples)", "dt.loops.splits takes a component's output"),
        ("dt.loops.splits(Load(span=1), exclude='eval')", "exclude is 'eval'"),
        ("dt.loops.splits(dt.map_(lambda span: Load(span=span), over=[1, 2]))", "Splits: the parameter 'rows' takes"),
        (
            "dt.loops.paired({'a': Examples, 'b': Statistics}, match_version=False, keep_all_versions=True)",
            "needs match_version",
        ),
        (
            "out = []\ndt.map_(lambda s: out.append(Load(span=s)), over=[1])\nShow(dt.resolvers.rolling(out[0], 2))",
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
    windows = "dt.loops.sliding(Examples, 1)\ndt.loops.sliding(Examples, 2)"
    body = f"for folder in 'abc': dt.loops.spans(f'{{folder}}/{{{{SPAN}}}}')\n{windows}"
    assert shop(body).build().ids == ("Spans", "Spans2", "Spans3", "Sliding", "Sliding2")
    for alone in (
        lambda: dt.loops.spans("{SPAN}"),
        lambda: dt.loops.sliding(Examples, 2),
        lambda: dt.loops.sequential(Examples, 2),
    ):
        with pytest.raises(BuildError, match="is used outside a pipeline"):
            alone()


def test_the_compiled_form_keeps_what_is_asked(shop: Pipe) -> None:
    built = shop(
        "mine = Load(span=count)\nCheck(mine, bad=0)\nShow(dt.resolvers.rolling(mine, 3, exclude=[2]))"
    ).build()
    assert Pipeline.from_json(built.to_json()) == built
    assert built.upstream("Show") == ("Load", "Check")  # the gate holds a window back too
    source = built.to_json().partition('"query":"rolling"')[0]
    assert '"of":{"node":"Load","output":"examples"}' in source
