"""Dataflow without Dataflow: the job graphs that it would be given.

No job is submitted. What is checked: the graphs of a pass and of a pipeline translate to Beam's runner API and back,
they ask for nothing beyond what every portable runner has, and all that a worker is sent unpickles in a process that
has only drivetrain. With apache-beam[gcp] installed, Beam's own Dataflow runner makes its job request of
them as well (`--dry_run`, which ends before anything is sent). That Dataflow runs them is not.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import open_parquet
from drivetrain.tests.conformance.control_cases import CASES
from drivetrain.tests.data import passes

if importlib.util.find_spec("apache_beam") is None:  # imported late: it takes a second, in each worker of pytest
    pytest.skip("apache_beam is not installed", allow_module_level=True)
Build = Callable[[Any], object]  # Any: Beam's classes have no types
# What Beam calls the primitives and well-known composites, by which a runner knows what to do without Python.
KNOWN = {"impulse", "flatten", "group_by_key", "pardo", "combine_per_key", "combine_globally", "reshuffle", "create"}


@pytest.fixture(params=["pass", "pipeline"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Build:
    """Adds the transforms of a pass over data, or of a pipeline with branches and loops."""
    from drivetrain.data.beam import _Accumulate, _MergeStates, add_pass
    from drivetrain.pipelines.runners.beam import RunAddress, add_steps
    from drivetrain.pipelines.runners.steps import steps

    if request.param == "pass":
        pq.write_table(pa.table({"a": range(9), "s": ["x"] * 9}), tmp_path / "in.parquet", row_group_size=2)
        source = open_parquet([tmp_path / "in.parquet"])
        work = _Accumulate(source, passes.Trace, None, str(tmp_path))
        return partial(
            add_pass,
            shards=5, work=work, combine=_MergeStates(5, passes.Trace), result=tmp_path / "result",
        )  # fmt: skip
    pipeline = next(case for case in CASES if case.pipeline == "control/loops:in_each_other").load().build()
    return partial(
        add_steps, steps=steps(pipeline, pipeline.ids), address=RunAddress(str(tmp_path), None, "a-run", False)
    )


def made(build: Build, *flags: str) -> Any:
    """The pipeline, without running it."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    pipeline = beam.Pipeline(options=PipelineOptions(list(flags)))
    build(pipeline)
    return pipeline


@pytest.mark.beam
def test_graphs_ask_for_nothing_special(build: Build) -> None:
    pipeline = made(build)
    graph = pipeline.to_runner_api()
    leaves = {
        transform.spec.urn
        for transform in graph.components.transforms.values()
        # A composite that only passes on what it is given has no part.
        if not transform.subtransforms and set(transform.outputs.values()) - set(transform.inputs.values())
    }
    assert leaves
    assert {urn.split(":")[2] for urn in leaves} <= KNOWN, leaves
    # No state, timers, splittable functions or stable input, which not every runner has.
    assert list(graph.requirements) == []
    again = type(pipeline).from_runner_api(graph, pipeline.runner, pipeline.options).to_runner_api()
    names = [sorted(t.unique_name for t in each.components.transforms.values()) for each in (graph, again)]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.beam
def test_a_worker_needs_only_drivetrain(build: Build, tmp_path: Path) -> None:
    """What is sent is pickled by reference: a process that has not run this test reads it."""
    from apache_beam.portability.api import beam_runner_api_pb2

    graph = made(build).to_runner_api()
    functions = []
    for transform in graph.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if payload.do_fn.urn == "beam:dofn:pickled_python_info:v1":  # else one of Beam's own, by name
                functions.append(payload.do_fn.payload)
    assert functions
    (tmp_path / "functions").mkdir()
    for number, function in enumerate(functions):
        (tmp_path / "functions" / str(number)).write_bytes(function)
    script = (
        "import sys; from pathlib import Path; from apache_beam.internal import pickler\n"
        "print(len([pickler.loads(path.read_bytes()) for path in Path(sys.argv[1]).iterdir()]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "functions")]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, timeout=100)
    assert done.stdout.strip() == str(len(functions)), done.stderr


@pytest.mark.skipif(importlib.util.find_spec("google.cloud.dataflow_v1beta3") is None, reason="no apache-beam[gcp]")
def test_dataflows_own_runner_makes_its_job_of_it(build: Build) -> None:
    flags = ("--runner=DataflowRunner", "--dry_run=True", "--project=a-project", "--region=europe-north1")
    pipeline = made(build, *flags, "--temp_location=gs://a-bucket/temp", "--no_auth", "--sdk_location=default")
    job = pipeline.run().job
    assert job.proto_pipeline.components.transforms
