"""Pipelines: the DSL, the IR, the launcher and the runners."""

from .dsl.component import Component, component
from .dsl.control import FinishedRun, map_, not_, on_exit, one_of, optional, otherwise, when
from .dsl.pipeline import PipelineFunction, load_pipeline, pipeline
from .ir.ir import Pipeline
from .launcher.decisions import decide, judge
from .launcher.decisions import waiting as waiting_tasks
from .launcher.home import Home
from .launcher.observers import Observer
from .launcher.partial import Selection
from .launcher.results import NodeResult
from .launcher.root import RootLocation, find_root
from .launcher.runs import Run, RunOptions, UnreadableRun, list_runs, open_run, recorded_runs, tag_run
from .launcher.spin import SpinResult, spin
from .project.context import LaunchContext, current
from .project.files import (
    Files,
    FileSet,
    InputFile,
    SqlQuery,
    files,
    query,
    resolve_files,
)
from .project.functions import Fn, FunctionRef, load
from .project.secret import Secret, secret
from .resolvers import artifact, latest, latest_blessed, registered
from .run import RunResult, resume, run_pipeline

__all__ = [
    "Component",
    "FileSet",
    "Files",
    "FinishedRun",
    "Fn",
    "FunctionRef",
    "Home",
    "InputFile",
    "LaunchContext",
    "NodeResult",
    "Observer",
    "Pipeline",
    "PipelineFunction",
    "RootLocation",
    "Run",
    "RunOptions",
    "RunResult",
    "Secret",
    "Selection",
    "SpinResult",
    "SqlQuery",
    "UnreadableRun",
    "artifact",
    "component",
    "current",
    "decide",
    "files",
    "find_root",
    "judge",
    "latest",
    "latest_blessed",
    "list_runs",
    "load",
    "load_pipeline",
    "map_",
    "not_",
    "on_exit",
    "one_of",
    "open_run",
    "optional",
    "otherwise",
    "pipeline",
    "query",
    "recorded_runs",
    "registered",
    "resolve_files",
    "resume",
    "run_pipeline",
    "secret",
    "spin",
    "tag_run",
    "waiting_tasks",
    "when",
]
