"""Pipelines: the DSL, the IR, the launcher and the runners.

A child process that runs a node imports this package and few of its names: they are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .dsl.component import Component as Component
    from .dsl.component import component as component
    from .dsl.control import FinishedRun as FinishedRun
    from .dsl.control import map_ as map_
    from .dsl.control import not_ as not_
    from .dsl.control import on_exit as on_exit
    from .dsl.control import one_of as one_of
    from .dsl.control import optional as optional
    from .dsl.control import otherwise as otherwise
    from .dsl.control import when as when
    from .dsl.pipeline import PipelineFunction as PipelineFunction
    from .dsl.pipeline import load_pipeline as load_pipeline
    from .dsl.pipeline import pipeline as pipeline
    from .ir.ir import Pipeline as Pipeline
    from .launcher.decisions import decide as decide
    from .launcher.decisions import judge as judge
    from .launcher.decisions import waiting_tasks as waiting_tasks
    from .launcher.home import Home as Home
    from .launcher.observers import Observer as Observer
    from .launcher.partial import Selection as Selection
    from .launcher.results import NodeResult as NodeResult
    from .launcher.root import RootLocation as RootLocation
    from .launcher.root import find_root as find_root
    from .launcher.runs import Run as Run
    from .launcher.runs import RunOptions as RunOptions
    from .launcher.runs import UnreadableRun as UnreadableRun
    from .launcher.runs import list_runs as list_runs
    from .launcher.runs import open_run as open_run
    from .launcher.runs import recorded_runs as recorded_runs
    from .launcher.runs import tag_run as tag_run
    from .launcher.spin import SpinResult as SpinResult
    from .launcher.spin import spin as spin
    from .project.context import LaunchContext as LaunchContext
    from .project.context import current as current
    from .project.files import Files as Files
    from .project.files import FileSet as FileSet
    from .project.files import InputFile as InputFile
    from .project.files import SqlQuery as SqlQuery
    from .project.files import files as files
    from .project.files import query as query
    from .project.files import resolve_files as resolve_files
    from .project.functions import Fn as Fn
    from .project.functions import FunctionRef as FunctionRef
    from .project.functions import load as load
    from .project.secret import Secret as Secret
    from .project.secret import secret as secret
    from .resolvers import artifact as artifact
    from .resolvers import latest as latest
    from .resolvers import latest_blessed as latest_blessed
    from .resolvers import registered as registered
    from .run import RunResult as RunResult
    from .run import resume as resume
    from .run import run_pipeline as run_pipeline

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "dsl.component": "Component component",
        "dsl.control": "FinishedRun map_ not_ on_exit one_of optional otherwise when",
        "dsl.pipeline": "PipelineFunction load_pipeline pipeline",
        "ir.ir": "Pipeline",
        "launcher.decisions": "decide judge waiting_tasks",
        "launcher.home": "Home",
        "launcher.observers": "Observer",
        "launcher.partial": "Selection",
        "launcher.results": "NodeResult",
        "launcher.root": "RootLocation find_root",
        "launcher.runs": "Run RunOptions UnreadableRun list_runs open_run recorded_runs tag_run",
        "launcher.spin": "SpinResult spin",
        "project.context": "LaunchContext current",
        "project.files": "Files FileSet InputFile SqlQuery files query resolve_files",
        "project.functions": "Fn FunctionRef load",
        "project.secret": "Secret secret",
        "resolvers": "artifact latest latest_blessed registered",
        "run": "RunResult resume run_pipeline",
    },
)
