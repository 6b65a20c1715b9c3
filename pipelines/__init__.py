"""The pipeline room: the DSL, the compiled form, the launcher and the runners."""

from .dsl.component import Component, component
from .dsl.control import Ended, map_, not_, on_exit, one_of, optional, otherwise, unzip, when
from .dsl.history import (
    all_spans,
    artifact,
    latest,
    latest_blessed,
    latest_model,
    newest_model_not_trained_on,
    previous,
    rolling,
    static_range,
)
from .dsl.pipeline import PipelineFunction, load_pipeline, pipeline
from .form.ir import Pipeline
from .history.loopables import paired, sequential, sliding, spans, splits
from .launching.decisions import decide
from .launching.decisions import waiting as waiting_tasks
from .launching.home import Home, Run, RunOptions, list_runs, open_run
from .launching.outcome import NodeResult, Observer
from .launching.partial import Selection
from .launching.spin import Spun, spin
from .run import RunResult, resume, run_pipeline
from .sources.context import LaunchContext, current
from .sources.files import Files, FileSet, InputFile, SqlQuery, files, query, resolve_files
from .sources.functions import Fn, FunctionRef, load
from .sources.secret import Secret, secret

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
    "Selection",
    "Spun",
    "SqlQuery",
    "all_spans",
    "artifact",
    "component",
    "current",
    "decide",
    "files",
    "latest",
    "latest_blessed",
    "latest_model",
    "list_runs",
    "load",
    "load_pipeline",
    "map_",
    "newest_model_not_trained_on",
    "not_",
    "on_exit",
    "one_of",
    "open_run",
    "optional",
    "otherwise",
    "paired",
    "pipeline",
    "previous",
    "query",
    "resolve_files",
    "resume",
    "rolling",
    "run_pipeline",
    "secret",
    "sequential",
    "sliding",
    "spans",
    "spin",
    "splits",
    "static_range",
    "unzip",
    "waiting_tasks",
    "when",
]
