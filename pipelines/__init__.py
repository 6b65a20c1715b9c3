"""The pipeline room: the DSL, the compiled form, the launcher and the runners."""

from .component import Component, component
from .context import LaunchContext, current
from .control import Ended, map_, not_, on_exit, one_of, optional, otherwise, unzip, when
from .files import Files, FileSet, InputFile, SqlQuery, files, query, resolve_files
from .functions import Fn, FunctionRef, load
from .handles import latest, latest_blessed
from .home import Home, Run, RunOptions, list_runs, open_run
from .ir import Pipeline
from .outcome import NodeResult, Observer
from .pipeline import PipelineFunction, load_pipeline, pipeline
from .run import RunResult, resume, run_pipeline
from .secret import Secret, secret

__all__ = [
    "Component",
    "Ended",
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
    "Secret",
    "SqlQuery",
    "component",
    "current",
    "files",
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
    "resolve_files",
    "resume",
    "run_pipeline",
    "secret",
    "unzip",
    "when",
]
