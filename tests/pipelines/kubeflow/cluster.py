"""A cluster's settings and small pipelines for the tests of this folder, and the conformance suite compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from drivetrain.pipelines import Pipeline, PipelineFunction, load_pipeline
from drivetrain.pipelines.kubeflow.compiler import CompiledPipeline, compile_pipeline
from drivetrain.pipelines.kubeflow.settings import ClusterSettings, KeyReference, PodSettings
from drivetrain.tests.conformance import control_cases, table_cases
from drivetrain.tests.conformance.case import Case

CLUSTER = ClusterSettings(
    "registry.example/shop:1",
    "s3://bucket/shop",
    KeyReference("drivetrain-store", "url"),
    defaults=PodSettings(secrets=(("CONFORMANCE_TOKEN", KeyReference("conformance", "token")),)),
)
CASES: Mapping[str, Case] = {case.pipeline: case for case in (*control_cases.CASES, *table_cases.CASES)}
"""A case of each pipeline of the suite."""
PARTS = (Path(control_cases.__file__).parent / "control" / "parts.py").read_text()
REFUSED = {"control/others:by_priority": "Low has a priority"}
"""What Kubeflow cannot keep of them."""


@cache
def conformance(name: str) -> CompiledPipeline:
    """A pipeline of the suite, compiled."""
    pipeline, function = original(name), CASES[name].load()
    return compile_pipeline(pipeline, CLUSTER, project=function.project, lines=function.lines)


@cache
def original(name: str) -> Pipeline:
    """A pipeline of the suite as it is built."""
    return CASES[name].load().build()


def compiled(function: PipelineFunction[..., object], settings: ClusterSettings = CLUSTER) -> CompiledPipeline:
    """A pipeline in KFP's form."""
    return compile_pipeline(function.build(), settings, project=function.project, lines=function.lines)


def built(project: Callable[..., Path], source: str) -> PipelineFunction[..., object]:
    """The pipeline of a module's text, which has the components of the suite at hand."""
    folder = project("shop", parts=PARTS, pipeline=source)
    text = (folder / "pipeline.py").read_text()
    (folder / "pipeline.py").write_text(f"import drivetrain as dt\nfrom .parts import *\n\n{text}")
    return load_pipeline(folder)
