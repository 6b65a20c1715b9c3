"""What a collection leaves alone: runs at work, and the newest model at each destination."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from drivetrain.metadata import StagedArtifact
from drivetrain.metadata.retention import RetentionPolicy, RetentionRule, collect, plan
from drivetrain.owner import Owner
from drivetrain.pipelines import Home, PipelineFunction, open_run, run_pipeline
from drivetrain.pipelines.launcher.retention import protections

Pipe = Callable[..., PipelineFunction[..., object]]
MAKE = "Make(count=count)"
LAST = RetentionPolicy((RetentionRule(keep_last=1),), grace=timedelta(0))


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


def test_the_newest_push_to_each_destination_stays(pipe: Pipe, home: Home) -> None:
    pushed = []
    for version, destination in enumerate(("a", "a", "b")):
        run = open_run(home, run_pipeline(home, pipe(MAKE), {"count": version}).run)
        contexts = [run.context, home.store.context("node", "p.Push")]
        execution = home.store.start("Push", contexts=contexts)
        staged = home.payloads.stage("Push", execution.uid, "out")
        (staged / "content" / "receipt.json").write_text(json.dumps({"version": version}))
        uri = f"artifacts/Push/{execution.uid}/out"
        tree = home.payloads.publish(staged, uri)
        new = StagedArtifact("PushedModel", uri, tree.fingerprint, tree.size, {"destination": destination})
        pushed += home.store.publish(execution, {"out": [new]})["out"]
    planned = plan(home.store, home.root, LAST, protections(home))
    assert pushed[0].id in {artifact.id for artifact, _ in planned.mark}
    assert planned.kept[pushed[1].id] == "pushed to a"
    assert planned.kept[pushed[2].id] == "pushed to b"
    collect(home.store, home.root, planned, "ann")
