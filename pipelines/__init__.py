"""The pipeline room: the DSL, the compiled form, the launcher and the runners."""

from .dsl.component import Component, component
from .dsl.control import Ended, map_, not_, on_exit, one_of, optional, otherwise, unzip, when
from .dsl.pipeline import PipelineFunction, load_pipeline, pipeline
from .ir.ir import Pipeline
from .launcher.decisions import decide
from .launcher.decisions import waiting as waiting_tasks
from .launcher.home import (
    Home,
    Run,
    RunOptions,
    list_runs,
    open_run,
)
from .launcher.outcome import NodeResult, Observer
from .launcher.partial import Selection
from .launcher.spin import Spun, spin
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
from .resolvers.loopables import (
    paired,
    sequential,
    sliding,
    spans,
    splits,
)
from .resolvers.queries import (
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
from .run import RunResult, resume, run_pipeline

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
