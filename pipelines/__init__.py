"""The pipeline room: the DSL, the compiled form, the launcher and the runners."""

from .component import Component, component
from .context import LaunchContext, current
from .files import Files, FileSet, InputFile, SqlQuery, files, query, resolve_files
from .functions import Fn, FunctionRef, load
from .handles import latest, latest_blessed
from .home import Home, Run, RunOptions, list_runs, open_run
from .ir import Pipeline
from .outcome import NodeResult, Observer
from .pipeline import PipelineFunction, load_pipeline, pipeline, when
from .run import RunResult, resume, run_pipeline

__all__ = [
    "Component",
    "FileSet",
    "Files",
    "Fn",
    "FunctionRef",
    "Home",
    "InputFile",
    "LaunchContext",
    "NodeResult",
    "Observer",
    "Pipeline",
    "PipelineFunction",
    "Run",
    "RunOptions",
    "RunResult",
    "SqlQuery",
    "component",
    "current",
    "files",
    "latest",
    "latest_blessed",
    "list_runs",
    "load",
    "load_pipeline",
    "open_run",
    "pipeline",
    "query",
    "resolve_files",
    "resume",
    "run_pipeline",
    "when",
]
