"""What the compiler of KFP's own backend makes of our pipelines: the Argo workflow that a cluster would run.

It is built by Go from the modules of Kubeflow Pipelines, through Go's proxy; where that does not give them, the tests
skip, and fail where DRIVETRAIN_REQUIRE names argo.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from drivetrain.pipelines.kubeflow.lint import lint_documents
from drivetrain.tests.pipelines.kubeflow.cluster import CASES, REFUSED, conformance
from drivetrain.tests.pipelines.kubeflow.planted import HARMLESS, PLANTED

pytestmark = [pytest.mark.argo, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
Json = dict[str, Any]
SEEN_BY_ARGO = ("component", "producer", "executor", "field")
"""Of the eight planted mistakes, those that the backend's compiler tells of; the others show when it runs."""


@pytest.fixture(scope="session")
def argocheck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built; modules and what was compiled stay in the caches of Go's own user."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    folder = tmp_path_factory.mktemp("argocheck")
    for name in ("go.mod", "main.go"):
        shutil.copy(HERE / "argocheck" / name, folder)
    # The session's XDG_CACHE_HOME is new and empty, and Go would fill it anew.
    caches = {"GOCACHE": str(Path.home() / ".cache" / "go-build"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    built = subprocess.run(
        [go, "build", "-o", "argocheck", "."],
        cwd=folder, env={**os.environ, **caches}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode and any(sign in built.stderr for sign in ("403 Forbidden", "dial tcp", "no such host", "EOF")):
        pytest.skip(f"the Go proxy does not give Kubeflow Pipelines: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    return folder / "argocheck"


def asked(program: Path, questions: Iterable[Json]) -> list[Json]:
    """What the backend answers to each."""
    text = "".join(json.dumps(each) + "\n" for each in questions)
    told = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=600)
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.fixture(scope="session")
def workflows(argocheck: Path) -> dict[str, Json]:
    """The workflow of each pipeline of the suite."""
    names = sorted(CASES.keys() - REFUSED.keys())
    told = asked(argocheck, ({"spec": (one := conformance(name)).spec, "platform": one.platform} for name in names))
    return dict(zip(names, told, strict=True))


def templates(workflow: Json) -> dict[str, Json]:
    return {template["name"]: template for template in workflow["spec"]["templates"]}


@pytest.mark.parametrize("name", sorted(CASES.keys() - REFUSED.keys()))
def test_the_workflow_has_our_tasks_in_our_order(name: str, workflows: dict[str, Json]) -> None:
    assert "error" not in workflows[name]
    found, workflow = conformance(name), templates(workflows[name]["workflow"])
    for ref, component in found.spec["components"].items():
        if "dag" not in component:
            continue
        there = {task["name"]: task for task in workflow[ref]["dag"]["tasks"]}
        exits = set()
        for task, body in component["dag"]["tasks"].items():
            if body.get("triggerPolicy", {}).get("strategy"):
                exits.add(task)
                continue
            needs = " && ".join(f"{other}.Succeeded" for other in body.get("dependentTasks", []))
            loop = "parameterIterator" in body
            first = there[task if loop else f"{task}-driver"]
            assert first.get("depends", "") == needs
            condition = body.get("triggerPolicy", {}).get("condition")
            assert bool(there[task].get("when")) == bool(condition and not loop)
        assert not exits & there.keys()


@pytest.mark.parametrize("name", sorted(CASES.keys() - REFUSED.keys()))
def test_the_run_is_left_by_one_hook(name: str, workflows: dict[str, Json]) -> None:
    root = {task["name"]: task for task in templates(workflows[name]["workflow"])["root"]["dag"]["tasks"]}
    assert root.keys() == {"work-driver", "work"}
    hook = root["work"]["hooks"]["exit"]["template"]
    assert hook in ("exit-hook-root-drivetrain-close", "exit-hook-root-leave")
    if hook.endswith("leave"):
        inner = {task["name"]: task for task in templates(workflows[name]["workflow"])["comp-leave"]["dag"]["tasks"]}
        assert inner["exits"]["hooks"]["exit"]["template"] == "exit-hook-comp-leave-drivetrain-close"


def test_loops_retries_and_bounds(workflows: dict[str, Json]) -> None:
    few = templates(workflows["control/loops:few_at_once"]["workflow"])
    (loop,) = (template for name, template in few.items() if name.endswith("for-map-iterator"))
    assert loop["parallelism"] == 2
    assert any("withSequence" in task for task in loop["dag"]["tasks"])
    retried = templates(workflows["control/others:retried"]["workflow"])
    assert "retry-system-container-impl" in retried
    assert "retryStrategy" in retried["retry-system-container-impl"]


def test_the_backend_sees_some_of_the_planted_mistakes(argocheck: Path) -> None:
    questions = []
    for _, name, change, *_ in PLANTED[:8]:
        spec, platform = copy.deepcopy(conformance(name).spec), copy.deepcopy(conformance(name).platform)
        change(spec, platform)
        questions.append({"spec": spec, "platform": platform})
    told = asked(argocheck, questions)
    assert tuple(planted[0] for planted, each in zip(PLANTED, told, strict=False) if "error" in each) == SEEN_BY_ARGO


def test_the_backend_takes_what_the_linter_lets_through(argocheck: Path) -> None:
    questions = []
    for _, name, change in HARMLESS:
        spec, platform = copy.deepcopy(conformance(name).spec), copy.deepcopy(conformance(name).platform)
        change(spec, platform)
        questions.append({"spec": spec, "platform": platform})
    assert [each.get("error") for each in asked(argocheck, questions)] == [None] * len(HARMLESS)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_backend_refuses_the_linter_sees(seed: int, argocheck: Path) -> None:
    """One value of a compiled pipeline changed at random: no change may be refused by the backend alone."""
    random = Random(seed)
    names = sorted(CASES.keys() - REFUSED.keys())
    questions = []
    for _ in range(300):
        documents = copy.deepcopy([(one := conformance(random.choice(names))).spec, one.platform])
        _change_one_value(documents[random.random() < 0.35], random)
        questions.append({"spec": documents[0], "platform": documents[1]})
    answers = asked(argocheck, questions)
    refused = [question for question, answer in zip(questions, answers, strict=True) if "error" in answer]
    assert len(refused) > 100
    assert [each for each in refused if not lint_documents(each["spec"], each["platform"])] == []


def _change_one_value(document: Json, random: Random) -> None:
    paths: list[tuple[Any, Any]] = []  # Any: containers of JSON and their keys or indices
    waiting: list[Any] = [document]
    while waiting:
        body = waiting.pop()
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            paths.append((body, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    body, key = random.choice(paths)
    value = body[key]
    changed = [7, -3, 2.5, True, None, "x", "", {}, [value], {"a": value}, f"{value}Q", "deleted"]
    body[key] = random.choice(changed)
    if body[key] == "deleted":
        del body[key]
