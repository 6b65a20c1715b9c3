"""What a collection leaves alone: runs at work, and the newest model at each destination."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import ArtifactRecord, StagedArtifact
from drivetrain.metadata.registry import Registry
from drivetrain.metadata.retention import RetentionPolicy, RetentionRule, collect, plan
from drivetrain.owner import Owner
from drivetrain.pipelines import Home, PipelineFunction, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher.partial import base_run
from drivetrain.pipelines.launcher.retention import protections

Pipe = Callable[..., PipelineFunction[..., object]]
MAKE = "Make(count=count)"
LAST = RetentionPolicy((RetentionRule(keep_last=1),), grace=timedelta(0))
WATCH = """
from pathlib import Path

import drivetrain as dt
from .parts import Numbers, made

def refuse(known, coming):
    if "numbers" in known:
        (known["numbers"].content / "total.txt").read_text()

@dt.component(preflight=refuse)
def Watch(numbers: Numbers, *, go: str) -> Numbers:
    if not Path(go).exists():
        raise RuntimeError("not yet")
    return made(numbers.total)
"""


def test_what_a_run_at_work_made_or_reads_stays_until_it_ends(pipe: Pipe, home: Home) -> None:
    first = open_run(home, run_pipeline(home, pipe(MAKE), {"count": 1}).run)
    run_pipeline(home, pipe(MAKE), {"count": 2})
    [made] = home.store.artifacts(context=first.context)

    def marked(owner: Owner, state: str) -> set[int]:
        home.store.update_context(first.context, {"state": state, "owner": owner.to_dict()})
        planned = plan(home.store, home.root, LAST, protections(home))
        return {artifact.id for artifact, _ in planned.mark}

    dead = replace(Owner.current(), pid=2**22 + 1)
    assert marked(Owner.current(), "COMPLETE") == {made.id}
    assert marked(Owner.current(), "RUNNING") == set()
    assert marked(dead, "RUNNING") == {made.id}


def publish(home: Home, count: int, pipe: Pipe, kind: str, **properties: str) -> ArtifactRecord:
    """An artifact of a type that a node made in a run of its own, from what Make made."""
    run = open_run(home, run_pipeline(home, pipe(MAKE), {"count": count}).run)
    inputs = {"numbers": home.store.artifacts(context=run.context)}
    execution = home.store.start("Last", contexts=[run.context, home.store.context("node", "p.Last")], inputs=inputs)
    staged = home.payloads.stage("Last", execution.uid, "out")
    (staged / "content" / "file.json").write_text(json.dumps(count))
    uri = f"artifacts/Last/{execution.uid}/out"
    tree = home.payloads.publish(staged, uri)
    [artifact] = home.store.publish(
        execution, {"out": [StagedArtifact(kind, uri, tree.fingerprint, tree.size, properties)]}
    )["out"]
    return artifact


def test_the_newest_push_to_each_destination_stays(pipe: Pipe, home: Home) -> None:
    pushed = [
        publish(home, count, pipe, "PushedModel", destination=folder) for count, folder in enumerate(("a", "a", "b"))
    ]
    planned = plan(home.store, home.root, LAST, protections(home))
    assert pushed[0].id in {artifact.id for artifact, _ in planned.mark}
    assert planned.kept[pushed[1].id] == "pushed to a"
    assert planned.kept[pushed[2].id] == "pushed to b"


def test_a_registered_version_stays_and_with_an_alias_what_led_to_it(pipe: Pipe, home: Home) -> None:
    models = [publish(home, count, pipe, "Model") for count in range(4)]
    registry = Registry(home.store)
    for model in models[:2]:
        registry.register("shop", model, by="ann")
    registry.set_alias("shop", "champion", 1, by="ann")
    collect(home.store, home.root, plan(home.store, home.root, LAST, protections(home)), "ann")
    collect(home.store, home.root, plan(home.store, home.root, LAST, protections(home)), "ann")
    planned = plan(home.store, home.root, LAST, protections(home))
    assert planned.kept[models[0].id] == "registered as shop@1 (champion)"
    assert planned.kept[models[1].id] == "registered as shop@2"

    def state(model: ArtifactRecord) -> tuple[str, str]:
        assert model.producer is not None
        [[numbers]] = home.store.inputs(home.store.execution(model.producer)).values()
        return home.store.artifact(model.id).state, numbers.state

    assert [state(model) for model in models] == [
        ("LIVE", "LIVE"),
        ("LIVE", "DELETED"),
        ("DELETED", "DELETED"),
        ("LIVE", "LIVE"),
    ]


@pytest.mark.parametrize("collections", [1, 2])
def test_a_resumed_run_makes_again_what_was_marked_or_removed(
    pipe: Pipe, home: Home, tmp_path: Path, collections: int
) -> None:
    """Whose node that failed looks beforehand at what it takes, which was made before the run failed."""
    go = tmp_path / "go"
    pipeline = pipe(f"from .watch import Watch\nWatch(Use(Make(count=count)), go={str(go)!r})", watch=WATCH)
    failed = run_pipeline(home, pipeline, {"count": 1})
    assert failed.nodes["Watch"].state == "FAILED"
    run_pipeline(home, pipeline, {"count": 2})
    for _ in range(collections):
        collect(home.store, home.root, plan(home.store, home.root, LAST, protections(home)), "ann")
    before = [record for node in ("Make", "Use") for (record,) in failed.nodes[node].outputs.values()]
    state = {1: "MARKED_FOR_DELETION", 2: "DELETED"}[collections]
    assert [home.store.artifact(each.id).state for each in before] == [state, state]
    with pytest.raises(InputError, match="has no outputs of Make, which is needed"):
        base_run(home, open_run(home, failed.run).pipeline, ["Watch"], failed.run)
    go.touch()
    done = resume(home, failed.run)
    assert done.state == "COMPLETE", [node.reason for node in done.nodes.values()]
    after = [record for node in ("Make", "Use") for (record,) in done.nodes[node].outputs.values()]
    assert [each.fingerprint for each in after] == [each.fingerprint for each in before]
    assert {each.id for each in after}.isdisjoint(each.id for each in before)
