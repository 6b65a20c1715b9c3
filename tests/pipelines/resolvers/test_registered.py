"""`Register` and `dt.registered` in pipelines: what is found, when, on which runner, and what is a cache hit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.components.register import Register
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata import Model
from drivetrain.metadata.approvals import ApprovalRule
from drivetrain.metadata.registry import Registry
from drivetrain.pipelines import Home, RunOptions, RunResult, resume, run_pipeline
from drivetrain.pipelines.ir.dag import dag
from drivetrain.tests.pipelines.history import Pipe, history, value

TRAIN = "model = Train([Load(span={span})])\nRegister(model, name='flights', alias={alias!r}, reason='nightly')"
RUNNERS = ["inline", "process", pytest.param("beam", marks=(pytest.mark.beam, pytest.mark.slow))]


@pytest.fixture
def shop(pipe: Pipe) -> Callable[..., object]:
    make = history(pipe)
    return lambda body, **more: make("from drivetrain.components import Register\n" + body, **more)


def train(home: Home, shop: Pipe, span: int, alias: str = "champion", **options: object) -> RunResult:
    return run_pipeline(home, shop(TRAIN.format(span=span, alias=alias)), **options)  # type: ignore[arg-type]


def registered(result: RunResult) -> dict[str, object]:
    (registration,) = result.nodes["Register"].outputs["registration"]
    return registration.properties


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_pipeline_registers_and_another_takes_it(home: Home, shop: Pipe, runner: str) -> None:
    options = RunOptions(runner=runner)
    first = train(home, shop, 1, options=options)
    assert registered(first) == {"name": "flights", "version": 1, "alias": "champion"}
    assert registered(train(home, shop, 2, "challenger", options=options))["version"] == 2
    version = Registry(home.store).resolve("flights@1")
    assert (version.by, version.why) == (Registry(home.store).model("flights").log[0].by, "nightly")
    body = (
        "Model_(dt.registered('flights@champion'))\n"
        "Model_.options(id='Newest')(dt.registered('flights'))\n"
        "Model_.options(id='None_')(dt.registered('flights@nothing'))\n"
        "Judge(dt.registered('flights@2'), dt.registered('flights@champion'))"
    )
    result = run_pipeline(home, shop(body), options=options)
    assert result.state == "COMPLETE"
    assert value(result, "Model_") == "[(1, None, 1)]"
    assert value(result, "Newest") == "[(2, None, 1)]"
    assert value(result, "None_") == "none"
    assert result.nodes["Judge"].outputs["evaluation"][0].properties["summary"] == "[(1, None, 1)]"


def test_the_key_is_of_what_was_found(home: Home, shop: Pipe) -> None:
    train(home, shop, 1)
    body = shop("Model_(dt.registered('flights@champion'))")
    assert run_pipeline(home, body).nodes["Model_"].state == "COMPLETE"
    assert run_pipeline(home, body).nodes["Model_"].state == "CACHED"
    by_number = run_pipeline(home, shop("Model_(dt.registered('flights@1'))"))
    assert by_number.nodes["Model_"].state == "CACHED"  # the same model by another name
    train(home, shop, 2)
    again = run_pipeline(home, body)
    assert (again.nodes["Model_"].state, value(again, "Model_")) == ("COMPLETE", "[(2, None, 1)]")
    Registry(home.store).set_alias("flights", "champion", 1, by="ada")
    assert run_pipeline(home, body).nodes["Model_"].state == "CACHED"


def test_what_is_registered_is_pushed_when_its_name_moves(home: Home, shop: Pipe) -> None:
    """Forward, and back: a server serves the newest version of a folder."""
    train(home, shop, 1)
    train(home, shop, 2, "")
    body = "from drivetrain.components import Pusher\nPusher(dt.registered('flights@champion'), destination='served')"
    for champion, state, texts in (
        (1, "COMPLETE", [1]),
        (1, "CACHED", [1]),
        (2, "COMPLETE", [1, 2]),
        (1, "COMPLETE", [1, 2, 1]),
    ):
        Registry(home.store).set_alias("flights", "champion", champion, by="ada")
        assert run_pipeline(home, shop(body)).nodes["Pusher"].state == state
        served = [(home.base / "served" / str(number) / "text.txt").read_text() for number in range(1, 1 + len(texts))]
        assert served == [f"[({span}, None, 1)]" for span in texts]


def test_a_drawing_names_it(shop: Pipe) -> None:
    (node,) = dag(shop("Model_(dt.registered('flights@champion'))").build())["nodes"]
    assert node["history"] == ["registered flights@champion"]


def test_the_same_model_is_registered_once(home: Home, shop: Pipe) -> None:
    assert [registered(train(home, shop, span))["version"] for span in (1, 1, 2, 1)] == [1, 1, 2, 1]
    model = Registry(home.store).model("flights")
    moves = [entry.facts["version"] for entry in model.log if entry.kind == "alias"]
    assert moves == [1, 2, 1]  # the run that came last says what is champion


def test_it_is_as_it_was_when_the_run_began(home: Home, shop: Pipe, tmp_path: Path) -> None:
    """Its name is moved after the run began, and before the node that asks runs for the first time, or the second."""
    train(home, shop, 1)
    train(home, shop, 2, "")
    flag = tmp_path / "flag"
    body = (
        f"from .moving import Move\nready = Move(root={str(home.root)!r}, flag={str(flag)!r})\n"
        "with dt.when(ready > 0):\n    Model_(dt.registered('flights@champion'))"
    )
    moving = shop(body, moving=MOVE)
    first = run_pipeline(home, moving)
    assert first.nodes["Move"].state == "FAILED"
    assert Registry(home.store).resolve("flights@champion").number == 2
    flag.touch()
    assert value(resume(home), "Model_") == "[(1, None, 1)]"
    assert value(run_pipeline(home, shop("Model_(dt.registered('flights@champion'))")), "Model_") == "[(2, None, 1)]"


MOVE = """
from pathlib import Path
import drivetrain as dt

@dt.component(deterministic=False)
def Move(*, root: str, flag: str) -> int:
    from drivetrain.metadata import MetadataStore
    from drivetrain.metadata.registry import Registry

    with MetadataStore.open(Path(root) / "metadata.db") as store:
        Registry(store).set_alias("flights", "champion", 2, by="ada")
    if not Path(flag).exists():
        raise ValueError("once more")
    return 1

"""


def test_what_must_be_there_and_is_not(home: Home, shop: Pipe) -> None:
    result = run_pipeline(home, shop("Judge(dt.registered('flights@champion'))"))
    assert result.state == "FAILED"
    reason = result.nodes["Judge"].reason
    assert reason.startswith("dt.registered(...): there is no registered model 'flights', when run ")
    train(home, shop, 1, "")
    result = run_pipeline(home, shop("Judge(dt.registered('flights@champion'))"))
    assert "the registered model 'flights' has no alias 'champion'" in result.nodes["Judge"].reason
    record = Registry(home.store).artifact(Registry(home.store).resolve("flights"))
    home.store.update_artifact(record, state="DELETED")
    result = run_pipeline(home, shop("Model_(dt.registered('flights'))"))
    assert "flights is no longer there" in result.nodes["Model_"].reason


@pytest.mark.parametrize("name", ["''", "'a/b'", "'flights@'", "3", "None", "'models:/flights/3'"])
def test_what_names_nothing_is_refused_when_it_is_built(shop: Pipe, name: str) -> None:
    with pytest.raises(BuildError, match=r"dt\.registered: .*\n.*fix: write \"flights\""):
        shop(f"Model_(dt.registered({name}))").build()


def test_another_type_is_refused(home: Home, shop: Pipe) -> None:
    train(home, shop, 1)
    with pytest.raises(BuildError, match="takes Examples, not Model"):
        shop("One(dt.registered('flights'))").build()
    result = run_pipeline(home, shop("One(dt.registered('flights', kind=Examples))"))
    assert "flights is of type Model, not Examples" in result.nodes["One"].reason


def test_an_alias_that_needs_approvals_fails_the_node_until_they_are_there(home: Home, shop: Pipe) -> None:
    train(home, shop, 1, "")
    registry = Registry(home.store)
    registry.require("flights", "champion", ApprovalRule(), by="ada")
    result = train(home, shop, 2)
    assert result.nodes["Register"].state == "FAILED"
    assert "champion of flights cannot move to version 2: 1 approval of 1 missing" in result.nodes["Register"].reason
    registry.answer("flights", 2, approved=True, by="grace of risk")
    assert registered(resume(home)) == {"name": "flights", "version": 2, "alias": "champion"}
    assert registry.resolve("flights@champion").number == 2


@pytest.mark.parametrize(("name", "alias"), [("a/b", ""), ("flights", "latest"), ("flights", "v3")])
def test_what_cannot_be_a_name_is_refused_before_anything_runs(shop: Pipe, name: str, alias: str) -> None:
    with pytest.raises((BuildError, InputError), match="cannot be"):
        shop(f"Register(Train([Load(span=1)]), name={name!r}, alias={alias!r})").build()


def test_nothing_is_registered_outside_a_run() -> None:
    with pytest.raises(InputError, match="nothing is registered outside a run"):
        Register(Model.new(), name="flights")


def test_no_pod_registers_in_a_store_of_its_own(home: Home, shop: Pipe) -> None:
    """A pod that cannot reach the store works in one that nobody else reads."""
    path = home.root / "work" / "alone" / "1a2b" / "metadata.db"
    alone = Home(home.root, store=str(path), create=True)
    assert (home.is_alone, alone.is_alone) == (False, True)
    result = train(alone, shop, 1)
    assert "a model is registered in the store, which cannot be reached" in result.nodes["Register"].reason
    alone.close()
