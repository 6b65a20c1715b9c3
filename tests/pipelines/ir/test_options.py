"""The options of a node: declared once; signature, help, checks, JSON and refusals by runners follow from that."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from typing import Any, get_args

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines import component
from drivetrain.pipelines.dsl.component import Component
from drivetrain.pipelines.ir.ir import Node, Pipeline
from drivetrain.pipelines.ir.options import OPTIONS, Need, NodeOptions, OptionArguments
from drivetrain.pipelines.run import RUNNERS
from drivetrain.pipelines.runners.capabilities import CAN, not_kept

# As users write them, as they are stored, and as they stand in the IR.
SAID: dict[str, tuple[Any, Any, Any]] = {
    "retries": (3, 3, 3),
    "backoff": (2, 2.0, 2.0),
    "backoff_factor": (1.5, 1.5, 1.5),
    "backoff_max": (60, 60.0, 60.0),
    "jitter": (1, 1.0, 1.0),
    "retry_on": ([OSError, "TimeoutError"], ("OSError", "TimeoutError"), ["OSError", "TimeoutError"]),
    "timeout": (timedelta(minutes=1), 60.0, 60.0),
    "priority": (-2, -2, -2),
    "cpus": (0.5, 0.5, 0.5),
    "memory": ("2GiB", 2**31, 2**31),
    "accelerators": (1, 1, 1),
    "replicas": (2, 2, 2),
    "env": ({"A": "x", "B": "y"}, (("A", "x"), ("B", "y")), [["A", "x"], ["B", "y"]]),
}


@component
def Nothing() -> int:
    return 0


def pipeline(options: NodeOptions) -> Pipeline:
    return Pipeline("p", (), (Node("N", "p:N", None, (), (), (), options=options),))


def test_one_declaration_is_all() -> None:
    names = list(OPTIONS)
    assert names == list(OptionArguments.__annotations__) == list(SAID)
    assert list(inspect.signature(Component.options).parameters) == ["self", "id", "cache", "after", *names]
    for name, each in OPTIONS.items():
        assert f"            {name}: {each.help[:20]}" in (Component.options.__doc__ or "")
        assert bool(each.needs) == bool(each.phrase), name
    assert set(CAN) == {*RUNNERS, "kubeflow"}
    assert frozenset().union(*CAN.values()) == set(get_args(Need)) - {""}


@pytest.mark.parametrize("name", SAID)
def test_what_is_written_is_stored_and_comes_back(name: str) -> None:
    written, stored, in_json = SAID[name]
    options = Nothing.options(**{name: written}).options_.node
    assert getattr(options, name) == stored
    assert options.changed() == [name]
    text = pipeline(options).to_json()
    assert json.loads(text)["nodes"][0]["options"] == {name: in_json}
    assert Pipeline.from_json(text)["N"].options == options
    refusing = {runner for runner in CAN if [option for option, _ in not_kept(options, runner)] == [name]}
    assert refusing == {runner for runner, can in CAN.items() if OPTIONS[name].needs not in {"", *can}}


def test_a_pipeline_without_options_names_none() -> None:
    assert json.loads(pipeline(NodeOptions()).to_json())["nodes"][0]["options"] == {}


@pytest.mark.parametrize("jitter", [-0.1, 1.1, True, "0.5", float("nan"), None, 10**400])
def test_a_jitter_is_a_fraction(jitter: Any) -> None:
    with pytest.raises(BuildError, match=r"jitter=.* makes no sense\n  fix: give 0 to 1"):
        Nothing.options(jitter=jitter)


def test_a_type_checker_checks_what_is_written() -> None:
    """mypy reads these lines with the rest of the tests, and complains of an ignore that is not needed."""
    Nothing.options(id="Second", retries=3, memory="4GiB", timeout=timedelta(hours=1), retry_on=[OSError], env=None)
    with pytest.raises(BuildError, match=r"retries='3' makes no sense"):
        Nothing.options(retries="3")  # type: ignore[arg-type]
    with pytest.raises(BuildError, match=r"there is no option 'retires'\n  fix: did you mean 'retries'"):
        Nothing.options(retires=3)  # type: ignore[call-arg]
