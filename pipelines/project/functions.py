"""The one loader of code by name: a project's folder becomes a package, `module:attribute` becomes an object.

Only a `FunctionRef` crosses a process border, never a pickled function.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, NamespaceLoader, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from ...errors import BuildError, DrivetrainError
from ...user_code import is_project, mistake
from .reads import forget, forget_package, note_missing_module, read_at_import, stamp_of, watch

_LOCK = threading.RLock()
_PACKAGE = __name__.split(".")[0]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class FunctionRef:
    """A function by name. Calling it loads the user's project first, in whatever process that happens.

    Attributes:
        project: The pipeline's folder, or None for a module that is installed.
        name: `module:attribute`, the module relative to the project.
    """

    project: Path | None
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BuildError(f"{self.name!r} does not name a function", fix='write "module:attribute"')

    @property
    def module(self) -> str:
        """The full name of the module, as it is imported."""
        name = self.name.partition(":")[0]
        return f"{package_name(self.project)}.{name}" if self.project else name

    def load(self) -> Any:  # Any: whatever the user's attribute is
        """Import the module and return its attribute.

        Raises:
            BuildError: The module or its attribute does not exist. What the user's module raises passes through.
        """
        attribute = self.name.partition(":")[2]
        module = import_project_module(self.project, self.module) if self.project else _import(self.module)
        try:
            return getattr(module, attribute)
        except AttributeError:
            names = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
            raise BuildError(
                f"{module.__file__ or module.__name__} has no {attribute!r}",
                fix=f"it defines {', '.join(names) or 'nothing callable'}",
            ) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Load the function and call it."""
        return self.load()(*args, **kwargs)


Fn: TypeAlias = FunctionRef | str | Callable[..., Any]
"""What a component's parameter is annotated with when it takes a user's function (or a named constant)."""


def load(fn: Fn) -> Any:
    """The object behind a `Fn` parameter, inside a component: a loaded reference, or the object as it was given."""
    if isinstance(fn, FunctionRef):
        return fn.load()
    if isinstance(fn, str):
        return FunctionRef(None, fn).load()
    return fn


def reference(fn: Fn, project: Path | None) -> FunctionRef:
    """Name a function, so that another process can find it.

    Raises:
        BuildError: A lambda, a closure or something of `__main__`, which no other process could import.
    """
    if isinstance(fn, FunctionRef):
        return fn
    if isinstance(fn, str):
        module = fn.partition(":")[0]
        inside = project is not None and _module_file(project, module) is not None
        return FunctionRef(project if inside or not _installed(module) else None, fn)
    name, module = getattr(fn, "__qualname__", ""), getattr(fn, "__module__", "")
    if "<" in name or "." in name or not name or module == "__main__":
        script = " other than the script that runs" if module == "__main__" else ""
        raise BuildError(
            f"{name or fn!r} cannot be named from another process",
            fix=f"define it at the top of a module of the project{script}; pass it, or its name as 'module:attribute'",
        )
    if project is not None and module.startswith(f"{package_name(project)}."):
        return FunctionRef(project, f"{module.partition('.')[2]}:{name}")
    # The project's own file under another name: its folder is on the path, as a script's or a notebook's is.
    source = getattr(getattr(fn, "__code__", None), "co_filename", None)
    if project is not None and source and module.partition(".")[0] != _PACKAGE:
        inside_module = _module_name(project, Path(source))
        return FunctionRef(project if inside_module else None, f"{inside_module or module}:{name}")
    return FunctionRef(None, f"{module}:{name}")


def package_name(project: Path | None) -> str:
    """The name under which a project's folder is imported: the folder's own, made an identifier."""
    if project is None:
        return _PACKAGE
    name = re.sub(r"\W", "_", project.name)
    return f"_{name}" if name[:1].isdigit() else name


def import_project_module(project: Path, module: str) -> ModuleType:
    """Import a module of a project; a project whose source changed since it was imported is imported anew.

    Raises:
        BuildError: The project is gone, its folder has the name of another package, or it has no such module. What the
            user's code raises passes through.
    """
    package = package_name(project)
    with _LOCK:
        if not project.is_dir():
            raise BuildError(
                f"the project {project} is gone",
                fix="move it back; or `drivetrain run` it where it is: what is unchanged comes from the cache",
            )
        if _PROJECTS.get(package) != project or _changed(package):
            _load_package(project, package)
        return _import(module, project)


class _ProjectLoader(SourceFileLoader):
    """Runs a project's module from its source, and remembers which source that was.

    No bytecode: Python trusts it by the second, and an edit within the same second would not be seen.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module's source, and note its time and size."""
        path = self.get_filename(fullname)
        # Before it is read: an edit in between then looks like a change, and the module is imported anew.
        _SOURCES[fullname] = _stamp(path)
        return self.source_to_code(self.get_data(path), path)


class _ProjectFinder:  # no `MetaPathFinder`, whose module imports as much as this one
    """Has `_ProjectLoader` load the modules of imported projects, and of nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec; None for a module that belongs to no project."""
        if path is None or fullname.partition(".")[0] not in _PROJECTS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _ProjectLoader(fullname, spec.loader.path)
        return spec


class _MissingFinder:
    """Asked last, where no other finder knows a module: it may appear, and then count."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, always: it only notes that the module was asked for and is missing."""
        note_missing_module(fullname, sys.path if path is None else list(path))
        return None


_PROJECTS: dict[str, Path] = {}  # package -> the folder that is imported under this name now
_LAST: dict[str, Path] = {}  # package -> the folder that was imported last under this name, if only in part
_SOURCES: dict[str, tuple[int, int] | None] = {}  # module -> time and size of the source that it was read from


def _load_package(project: Path, package: str) -> None:
    if package not in _PROJECTS and _taken(package, project):
        raise BuildError(f"the folder {project} has the name of a Python package, {package}", fix="rename the folder")
    _forget(package)
    if _LAST.get(package) != project:
        forget_package(package)
    _LAST[package] = project
    init = project / "__init__.py"
    if init.is_file():
        loader = _ProjectLoader(package, str(init))
        spec = importlib.util.spec_from_file_location(
            package, init, loader=loader, submodule_search_locations=[str(project)]
        )
    else:
        # A namespace package's loader, so that `importlib.resources` finds files; there is no other folder to look in.
        nowhere_else = NamespaceLoader(package, [str(project)], lambda *_: None)
        spec = ModuleSpec(package, nowhere_else, is_package=True)
        spec.submodule_search_locations = [str(project)]
    if spec is None:
        raise BuildError(f"{project} cannot be imported as a package", fix="check that the folder is readable")
    if not any(isinstance(finder, _ProjectFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ProjectFinder())
        sys.meta_path.append(_MissingFinder())
    watch()
    importlib.invalidate_caches()
    _PROJECTS[package] = project
    is_project(project)
    sys.modules[package] = module = importlib.util.module_from_spec(spec)
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        _forget(package)
        raise


def _taken(package: str, project: Path) -> bool:
    """Whether a package of that name, other than the project itself, can be imported: it must not be replaced."""
    if package in sys.stdlib_module_names or package == _PACKAGE:
        return True
    if package in sys.modules:
        return project not in [Path(path) for path in getattr(sys.modules[package], "__path__", [])]
    places = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    spec = PathFinder.find_spec(package, sorted(places))
    return spec is not None and spec.origin is not None and Path(spec.origin).parent != project


def _import(module: str, project: Path | None = None) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        where = f" in {project}" if project else ""
        name = module.removeprefix(f"{package_name(project)}.") if project else module
        raise BuildError(f"there is no module {name!r}{where}", fix="check the name before the colon") from None


def _changed(package: str) -> bool:
    """Whether a source file that a loaded project was read from has changed since."""
    stamps = {name: read for name, read in _SOURCES.items() if name == package or name.startswith(f"{package}.")}
    if any(name in sys.modules and _stamp(sys.modules[name].__file__) != read for name, read in stamps.items()):
        return True
    return any(stamp_of(path) != read for name in stamps for path, read in read_at_import(name).items())


def files_read(package: str) -> list[Path]:
    """The files that the modules of a project read while they were imported."""
    modules = [name for name in _SOURCES if name == package or name.startswith(f"{package}.")]
    return sorted({Path(path).absolute() for name in modules for path in read_at_import(name)})


def _stamp(path: str | None) -> tuple[int, int] | None:
    try:
        stat = Path(path or "").stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _forget(package: str) -> None:
    project = _PROJECTS.pop(package, None)
    sys.path_importer_cache.pop(str(project), None)  # or each project that was ever imported is looked at with the next
    inside = f"{package}."
    names = {package, *(name for name in (*sys.modules, *_SOURCES) if name.startswith(inside))}
    files = {str(getattr(sys.modules.pop(name, None), "__file__", None)) for name in names}
    for name in names:
        _SOURCES.pop(name, None)
    forget(names, files)


def _module_name(project: Path, file: Path) -> str | None:
    """The module's name within its project, from its file, however it was imported; None for a file of elsewhere."""
    try:
        inside = file.resolve().relative_to(project)
    except ValueError:
        return None
    parts = inside.with_suffix("").parts
    parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
    return ".".join(parts) if parts and all(part.isidentifier() for part in parts) else None


def _module_file(project: Path, module: str) -> Path | None:
    path = project.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


@contextmanager
def errors_at_user_line(project: Path) -> Iterator[None]:
    """Turn an exception of a project's code that is imported or built in the block into an error at the user's line.

    Raises:
        BuildError: Naming the last "file:line" of the project on the way to the exception.
    """
    try:
        yield
    except DrivetrainError as error:
        users = _frames_in(project, error)
        # Without a line where a value itself was refused, such as a trigger's; in a library where that called us with
        # what has no value yet.
        if users and (error.where is None or (error.where and _is_library(error.where))):
            error.where = f"{users[-1].filename}:{users[-1].lineno}"
        raise
    except Exception as error:
        users = _frames_in(project, error)
        cause = mistake(error, where=f"{users[-1].filename}:{users[-1].lineno}" if users else None)
        raise BuildError(cause.message, where=cause.where, fix=cause.fix) from error


def _frames_in(project: Path, error: Exception) -> list[traceback.FrameSummary]:
    """The frames of a project on the way to an exception; without those of packages, which may be installed in it."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_relative_to(project)]
    return [frame for frame in frames if not _is_library(frame.filename)] or frames


def _is_library(file: str) -> bool:
    """Whether a file is of Python's own library or of an installed package."""
    return file.startswith(tuple(f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "purelib", "platlib")))


@cache
def _packages() -> tuple[str, ...]:
    """The folders of drivetrain's own code. In a checkout, tests and examples lie beside them, as users' code does."""
    home = Path(__file__).parents[2]
    return tuple(f"{init.parent}/" for init in home.glob("*/__init__.py"))


def user_line() -> str:
    """The "file:line" of the nearest frame that is not drivetrain's own: the user's line that an error is about."""
    frame, packages = inspect.currentframe(), _packages()
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(packages) and not file.startswith("<") and file != contextlib.__file__:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "<unknown>"
