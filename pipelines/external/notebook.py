"""`notebook_component`: a Jupyter notebook as a component, run by papermill in a process of its own."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from ...errors import BuildError, Canceled, InputError, missing_extra
from ...metadata import Artifact
from ..dsl.component import Component
from ..project.closure import closure
from ..project.context import current
from ..project.functions import FunctionRef, user_line
from ..project.reads import note_file_read
from ..project.secret import Secret
from .declare import (
    DONE,
    Call,
    CommandError,
    Types,
    declare,
    declaring_module,
)

EVENT = "\x1e"
"""Begins a line of the child's that says how far it is."""


class Notebook(Artifact):
    """A notebook that was run for its values alone: as it is in `content/`, with what it printed in `extra/`."""


def notebook_component(
    source: str | Path,
    *,
    name: str | None = None,
    inputs: Types | None = None,
    outputs: Types | None = None,
    parameters: Types | None = None,
    kernel: str | None = None,
    gates: str | None = None,
    deterministic: bool = True,
) -> Component[..., Any]:
    """A notebook as a component, run from top to bottom in the node's work folder.

    Parameters are set below its cell with the tag "parameters", and so are paths: `examples_path` for an input
    `examples`, `model_path` for an output `model`, which is a folder to fill, or the file for a JSON value. Code
    cells, and the modules of the project that they import, are part of the cache key; text and old outputs are not.
    The notebook with what it printed lies in `extra/` of the outputs.

    Args:
        source: The .ipynb, relative to the file that calls this.
        name: The id of its nodes; from the file's name where None.
        inputs: Artifact types by name; `list[X]` and `X | None` too.
        outputs: Artifact types and JSON types by name.
        parameters: JSON types by name, or their defaults.
        kernel: Which kernel runs it, in place of the one that it names.
        gates: An input that it may veto, as of `dt.component`: by an output whose property `passed` is false.
        deterministic: Whether equal inputs give equal content, so that what it gave before may stand in.

    Raises:
        BuildError: It is not a notebook, or a declaration makes no sense.
    """
    where = user_line()
    file = Path(where.rpartition(":")[0])
    path = file.parent / source
    if secret := [key for key, hint in (parameters or {}).items() if hint is Secret or Secret in get_args(hint)]:
        raise BuildError(
            f"the parameter {secret[0]!r} is a secret, and parameters are written into the notebook",
            where=where,
            fix='read it there from the environment, which .options(env={"TOKEN": dt.secret("TOKEN")}) sets',
        )
    variables = [f"{key}_path" for key in (*(inputs or {}), *(outputs or {}))]
    if taken := [key for key in parameters or {} if key in variables]:
        raise BuildError(f"the notebook gets two variables {taken[0]!r}", where=where, fix="rename the parameter")
    cells, named_kernel = _read(path, where)
    project = _project(file)
    code = _imported(cells, project)
    spec = {"file": path.name, "cells": cells, "kernel": kernel or named_kernel, "code": code}
    for each in (path, *(project.joinpath(*Path(module).parts[1:]) for module in code)):
        note_file_read(declaring_module(), each)
    declared = dict(outputs or {})
    if not any(isinstance(kind, type) and issubclass(kind, Artifact) for kind in declared.values()):
        declared["notebook"] = Notebook
    return declare(
        name or _name(path.stem),
        "notebook",
        spec,
        partial(_carry_out, path, project),
        inputs=inputs,
        outputs=declared,
        parameters=parameters,
        gates=gates,
        deterministic=deterministic,
    )


def _name(stem: str) -> str:
    """A component's name in CamelCase, from a file's stem."""
    name = "".join(part.title() for part in re.split(r"[\W_]+", stem))
    return name if name[:1].isalpha() else f"Notebook{name}"


def _read(path: Path, where: str) -> tuple[list[dict[str, Any]], str]:
    """The code cells of a notebook, with their numbers from 1 among all, and the name of its kernel."""
    try:
        body = json.loads(path.read_bytes())
        if body["nbformat"] != 4:
            raise BuildError(
                f"{path} has the notebook format {body['nbformat']}", where=where, fix="open and save it in Jupyter"
            )
        cells = [
            {"number": number, "source": _text(cell["source"]), "tags": list(cell["metadata"].get("tags", []))}
            for number, cell in enumerate(body["cells"], 1)
            if cell["cell_type"] == "code"
        ]
        return cells, str(body["metadata"].get("kernelspec", {}).get("name", "python3"))
    except OSError as error:
        raise BuildError(f"{path} cannot be read: {error}", where=where, fix="name an .ipynb file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BuildError(f"{path} is not a notebook: {error!r:.80}", where=where, fix="name an .ipynb file") from None


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _project(file: Path) -> Path:
    """The folder of the project that declares the notebook: its package's, or the file's where there is no package."""
    package = sys.modules.get(declaring_module().partition(".")[0])
    folders = [Path(folder) for folder in getattr(package, "__path__", ())]
    return next((folder for folder in folders if file.is_relative_to(folder)), file.parent)


def _imported(cells: list[dict[str, Any]], project: Path) -> dict[str, str]:
    """The project's modules that code cells import, and theirs, with their digests."""
    digests: dict[str, str] = {}
    for module in sorted({name for cell in cells for name in _imports(cell["source"])}):
        path = project.joinpath(*module.split("."))
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            digests |= dict(closure(FunctionRef(project, f"{module}:_")).files)
    return digests


def _imports(source: str) -> Iterator[str]:
    """What a cell imports; lines for the shell and IPython's own left out."""
    lines = ["" if line.lstrip().startswith(("%", "!", "?")) else line for line in source.splitlines()]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:  # reported when the cell runs
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _carry_out(path: Path, project: Path, call: Call) -> None:
    from . import commands

    if importlib.util.find_spec("papermill") is None:
        raise missing_extra("papermill", "notebook")
    spec = call.spec
    if _imported(list(spec["cells"]), project) != dict(spec["code"]):
        raise BuildError(
            f"the code that {call.name} imports was edited after the pipeline was built", fix="`drivetrain run` it"
        )
    variables: dict[str, Any] = dict(call.parameters)
    for name, artifacts in call.inputs.items():
        paths = [str(each.content) for each in artifacts or ()]
        variables[f"{name}_path"] = None if artifacts is None else paths if name in call.many else paths[0]
    variables |= {f"{name}_path": str(artifact.content) for name, artifact in call.outputs.items()}
    variables |= {f"{name}_path": str(file) for name, file in call.values.items() if name != DONE}
    source, executed, failure = (call.scratch / name for name in ("source.ipynb", "executed.ipynb", "failure.json"))
    source.write_text(json.dumps(_whole(path, spec)), "utf-8")
    for artifact in call.outputs.values():
        if isinstance(artifact, Notebook):
            shutil.copy(source, artifact.content / spec["file"])
    work = current().work_dir
    job = {
        "source": str(source),
        "executed": str(executed),
        "failure": str(failure),
        "parameters": variables,
        "kernel": spec["kernel"],
        "cwd": str(work),
    }
    (call.scratch / "job.json").write_text(json.dumps(job), "utf-8")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH")))),
        # A person's start-up files and history have no part in it.
        "IPYTHONDIR": str(call.scratch / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(call.scratch / "runtime"),
    }
    argv = [sys.executable, "-m", f"{__package__}.notebook_child", str(call.scratch / "job.json")]
    progress = current().progress

    def on_line(line: str) -> bool:
        if not line.startswith(EVENT):
            return False
        done, total = json.loads(line[1:])
        with contextlib.suppress(Canceled):  # the loop that waits for the process raises it as well
            progress(done, total, "cells")
        return True

    try:
        commands.run(call.name, ["papermill", spec["file"]], argv, env, work, on_line=on_line)
    except CommandError as error:
        raise _failed(call, failure, executed, work) or error from None
    for artifact in call.outputs.values():
        shutil.copy(executed, artifact.extra / spec["file"])


def _whole(path: Path, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The notebook to run: the code cells of the IR, at their numbers.

    The text between them is not part of the IR. It is taken from the file where the file's code is still the same.
    """
    code = {cell["number"]: cell for cell in spec["cells"]}
    cells: list[dict[str, Any]] = []
    try:
        now, _ = _read(path, str(path))
        body = json.loads(path.read_bytes())["cells"] if now == [dict(cell) for cell in spec["cells"]] else []
    except BuildError:
        body = []
    for number in range(1, max([*code, len(body)], default=0) + 1):
        cell = {"id": f"cell-{number}", "metadata": {}}
        if number in code:
            cell["metadata"] = {"tags": list(code[number]["tags"])}
            rest = {"cell_type": "code", "source": code[number]["source"], "outputs": [], "execution_count": None}
            cells.append({**cell, **rest})
        elif body and body[number - 1]["cell_type"] == "markdown":
            cells.append({**cell, "cell_type": "markdown", "source": _text(body[number - 1]["source"])})
    kernel = {"name": spec["kernel"], "display_name": spec["kernel"], "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def _failed(call: Call, failure: Path, executed: Path, work: Path) -> CommandError | InputError | None:
    """The error of the cell that failed, None where none is known. The partly executed notebook is kept in `work`."""
    if not failure.is_file():
        return None
    report = json.loads(failure.read_bytes())
    file = call.spec["file"]
    if "kernel" in report:
        return InputError(
            f"{file} names the kernel {report['kernel']!r}, which is not here; there is {', '.join(report['kernels'])}",
            fix='say which is to run it: dt.notebook_component(..., kernel="python3")',
        )
    line = f", line {report['line']}" if report["line"] else ""
    message = f"{call.name}: cell {report['cell']} of {file}{line}: {report['name']}: {report['value']}"
    if not executed.is_file():
        return CommandError(message)
    kept = work / f"failed-{file}"
    shutil.copy(executed, kept)
    return CommandError(message, fix=f"correct the cell; the notebook as far as it came is {kept}")
