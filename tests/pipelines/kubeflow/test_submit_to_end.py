"""From a submission to its end: the simulator carries out what KFP's API was sent, and it is the run that was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, PipelineFunction, open_run, run_pipeline
from drivetrain.pipelines.kubeflow import following
from drivetrain.pipelines.kubeflow.client import KfpClient
from drivetrain.pipelines.kubeflow.settings import ClusterSettings
from drivetrain.pipelines.kubeflow.simulate import read, result_of, simulate
from drivetrain.pipelines.kubeflow.submit import submit

from .api_server import KfpServer

pytest.importorskip("kfp")

BODY = """
made = Make(count=count)
score = Score(made)
items = Items(count=2)
with dt.when(score > 0.1):
    good = Use.options(id="Good")(made, amount=AMOUNT)
with dt.when(score > 0.5):
    Use.options(id="Never")(made, amount=AMOUNT)
each = dt.map_(lambda item: Use.options(id="Each")(made, amount=item), over=items)
late = Score.options(id="Late")(good)
with dt.when(late > 0.4):
    Use.options(id="Last")(made, amount=9)
Sum(each)
with dt.on_exit() as run:
    Say(what=run.state)
"""


@pytest.mark.slow
def test_a_reduced_submission_ends_as_a_whole_run_does(
    home: Home,
    settings: ClusterSettings,
    server: KfpServer,
    pipe: Callable[..., PipelineFunction[..., object]],
    tmp_path: Path,
) -> None:
    run_pipeline(home, pipe(BODY.replace("AMOUNT", "1").replace("amount=item", "amount=7")))
    pipeline = pipe(BODY.replace("AMOUNT", "2"))
    done = submit(home, pipeline, settings)
    assert set(done.ended) == {"Make", "Score", "Items", "Never"}
    assert done.kfp is not None
    sent = server.runs[done.kfp.id]
    document = read((sent["pipeline_spec"]["pipeline_spec"], sent["pipeline_spec"]["platform_spec"]))
    run = open_run(home, done.run)
    carried = simulate(home, document, pipeline.project, sent["runtime_config"]["parameters"], run)
    sent["state"] = carried.state
    found = result_of(home, done.run, carried)
    assert {name: result.state for name, result in found.nodes.items()} == {
        "Make": "CACHED",
        "Score": "CACHED",
        "Items": "CACHED",
        "Never": "SKIPPED",
        "Good": "COMPLETE",
        "Each[0]": "COMPLETE",
        "Each[1]": "CACHED",  # the work that Good did before: its pod finds that out
        "Late": "COMPLETE",
        "Last": "COMPLETE",
        "Sum": "COMPLETE",
        "Say": "COMPLETE",
    }
    ended = following.wait(home, run, KfpClient(settings.api), every=0.01)
    assert ended.state == "COMPLETE"  # its own last pod said so
    reference = Home(tmp_path / "reference" / ".drivetrain")
    whole = run_pipeline(reference, pipeline)
    for name, result in whole.nodes.items():
        expected = [record.fingerprint for several in result.outputs.values() for record in several]
        made = [record.fingerprint for several in found.nodes[name].outputs.values() for record in several]
        assert made == expected, name
    reference.close()
