"""The runs of a case on the simulated cluster: compiled, the project in an image, a pod for every task."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, open_run
from drivetrain.pipelines.kubeflow.compiler import compile_pipeline
from drivetrain.pipelines.kubeflow.ownership import Submission, hand_over
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference, PodSettings
from drivetrain.pipelines.kubeflow.simulate import Document, SimulatedCluster, read, result_of, simulate
from drivetrain.pipelines.kubeflow.submit import arguments_of
from drivetrain.pipelines.launcher.partial import Selection, base_run
from drivetrain.pipelines.launcher.runs import new_run, reopen_run


def compiled(pipeline: PipelineFunction[..., object]) -> Document:
    """The pipeline's documents.

    Raises:
        InputError: Kubeflow cannot keep something of it.
    """
    built = pipeline.build()
    settings = ClusterSettings(
        image="registry.example/conformance:1",
        artifacts="s3://bucket/conformance",
        store=KeyReference("conformance", "store"),
        defaults=PodSettings(secret_volumes=(("/run/secrets", "conformance"),)),
    )
    found = compile_pipeline(built, settings, project=pipeline.project)
    return read((found.spec, found.platform))


def image(pipeline: PipelineFunction[..., object], folder: Path) -> Path:
    """A project as an image would hold it: a folder whose pipeline.py has this one."""
    project = folder / pipeline.project.name
    shutil.copytree(pipeline.project, project, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    module, name = pipeline.fn.__module__, pipeline.fn.__name__
    (project / "pipeline.py").write_text(f"from {module} import {name}\n")
    return project


def on_cluster(
    home: Home,
    pipeline: PipelineFunction[..., object],
    parameters: dict[str, object],
    options: RunOptions,
    only: tuple[str, ...] = (),
    resumes: bool = False,
    cluster: SimulatedCluster | None = None,
) -> RunResult:
    """Submit it, or have a run done again, and wait; gives what the store says."""
    document, built = compiled(pipeline), pipeline.build()
    if resumes:
        run = reopen_run(home, open_run(home, None))
    else:
        options = replace(options, runner="kubeflow")
        if only:
            nodes = Selection(only=only).nodes(built)
            options = replace(options, only=nodes, base=base_run(home, built, nodes, ""))
        run = new_run(home, built, pipeline.project, pipeline.values(parameters), options)
    run = hand_over(home, run, Submission())
    given = arguments_of(built, run.parameters)
    cluster = replace(cluster or SimulatedCluster(), parallel=options.parallel)
    simulated = simulate(home, document, image(pipeline, home.root / "image"), given, run, cluster)
    result = result_of(home, run.id, simulated)
    assert open_run(home, run.id).state == result.state, simulated
    return result
