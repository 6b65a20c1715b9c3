"""What code a function depends on: its module and every project module that one imports, read as text.

Nothing is imported, so a pipeline is built, and a cached run decided, without the user's libraries.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from ...digest import digest
from ...errors import BuildError, suggest
from ...user_code import is_library
from .distributions import version_of
from .functions import FunctionRef, package_name
from .our_sources import OurSource, read_ours
from .sources import SourceFile, Stamp, read_source, remember, remembered, stamp_of

_HOME = Path(__file__).parents[2]
_DRIVETRAIN = package_name(None)
# Rooms of ours that cannot change what a payload holds: a release that changes only these keeps users' caches.
_NEUTRAL = ("console", "metadata", "pipelines", "report", "__main__")
# Distributions that carry work about or show it, and never touch a value.
_CARRIERS = frozenset({"apache_beam", "click", "rich", "great_expectations"})
# A name for type checkers alone: that nothing installed has it is known after all distributions' lists were read.
_TYPES = "_typeshed"
# JAX_* variables that say where to cache, log or dump; any other may change what a program computes.
_SILENT_OPTIONS = ("CACHE", "LOG", "DUMP", "DEBUG", "TRACEBACK_FILTERING")


class Code(NamedTuple):
    """A function's source closure.

    Attributes:
        files: (path, digest) of every module of the project and of drivetrain, the path relative to its package's
            parent, sorted. The digest is that of the syntax; of the text of drivetrain's, and where the project reads
            its own docstrings or source.
        texts: (path, SHA-256 of its text) of the project's.
        outside: As `files`, of modules that lie neither in the project nor among installed distributions: on
            PYTHONPATH, or in a checkout that is installed to be edited.
        imports: Top-level names of what is imported from distributions, whose versions count, sorted.
        modules: (module, file) of the project's and those outside.
    """

    files: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str], ...]
    outside: tuple[tuple[str, str], ...]
    imports: tuple[str, ...]
    modules: tuple[tuple[str, Path], ...]

    @property
    def digest(self) -> str:
        """One digest over the project's own files; all else counts at launch, not in the IR: a pod may install it."""
        return _digest("drivetrain-code-v2", self.files)

    @property
    def counted(self) -> dict[str, str]:
        """What a cache key covers, by path."""
        return dict(self.files + self.outside)

    def is_as_built(self, built: str) -> bool:
        """Whether the project's own files are those of a compiled pipeline, by the digest that it records."""
        # Compiled pipelines of 0.1 recorded that of the text.
        return built in (self.digest, digest("drivetrain-code-v1", self.texts))


class _Roots(dict[str, Path]):
    """By name, where packages lie whose source is read: folders, or the only file.

    What lies in a folder is asked once: while one closure is read, which may look for a module at each import, it
    stays.
    """

    def __init__(self, roots: Mapping[str, Path]) -> None:
        super().__init__(roots)
        self._modules: dict[str, Path | None] = {}
        self._names: dict[str, frozenset[str]] = {}

    def find(self, name: str) -> Path | None:
        """The file of a module, of what its package's root has; None where there is none."""
        if name not in self._modules:
            top, *rest = name.split(".")
            if top not in self:
                return None
            self._modules[name] = self._find("/".join((str(self[top]), *rest)), is_root=not rest)
        return self._modules[name]

    def _find(self, path: str, *, is_root: bool) -> Path | None:  # text, not paths: it is asked for often
        if is_root:
            return Path(path) if os.path.isfile(path) else _first_file(path, ("/__init__.py",))  # noqa: PTH113
        folder, _, stem = path.rpartition("/")
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))  # noqa: PTH208
            except OSError:  # nor does Python import from a folder that it cannot list
                self._names[folder] = frozenset()
        names = self._names[folder]
        suffixes = [each for each in (*EXTENSION_SUFFIXES, ".py", ".pyc") if stem + each in names]
        return _first_file(path, ["/__init__.py", *suffixes] if stem in names else suffixes)


@lru_cache(1024)  # the nodes of a pipeline share their modules
def _digest(kind: str, files: tuple[tuple[str, str], ...]) -> str:
    return digest(kind, tuple(file for file in files if not file[0].startswith(f"{_DRIVETRAIN}/")))


def closure(ref: FunctionRef) -> Code:
    """Read the modules that a function depends on, function-level imports and parent packages included.

    Raises:
        BuildError: Its module does not exist or is not Python.
    """
    project = package_name(ref.project) if ref.project is not None else None
    roots = _Roots({_DRIVETRAIN: _HOME})
    if project is not None and ref.project is not None:
        roots[project] = ref.project
    start = ref.module
    _add_outside(start, roots)
    if _find(start, roots) is None:
        if ref.project is not None:
            name = ref.name.partition(":")[0]
            siblings = sorted(path.stem for path in ref.project.glob("*.py") if path.stem != "__init__")
            raise BuildError(f"there is no module {name!r} in {ref.project}", fix=suggest(name, siblings))
        return Code((), (), (), (start.partition(".")[0],), ())
    todo, external = [start], set[str]()
    ours: dict[str, _Ours] = {}
    seen: dict[str, tuple[Path, SourceFile]] = {}
    while todo or (todo := _setter(project, roots, seen)):
        name = todo.pop()
        if name in ours or name in seen or _is_neutral(name):
            continue
        if _is_ours(name):
            if (module_of_ours := _ours(name)) is not None:
                ours[name] = module_of_ours
                todo += module_of_ours.reaches
                external |= module_of_ours.imports
            continue
        path = _find(name, roots)
        if path is None:
            continue
        module = read_source(str(path))
        seen[name] = (path, module)
        todo += accumulate(name.split(".")[:-1], "{}.{}".format)  # a package's __init__ runs first
        for target, names in _targets(module, name, path.name == "__init__.py"):
            top = target.partition(".")[0]
            if _add_outside(top, roots):
                todo += _modules(target, names, roots)
                continue
            external.add(top)
            if project is not None:
                # Python finds it in the project only where that folder is on the path, as a script's is.
                todo += _modules(f"{project}.{target}", names, roots)
    # Where one module of the user's may read docstrings or source, comments of any of them can change a result.
    by_text = any(module.reads_text for _, module in seen.values())
    files = [(module.file, module.digest) for module in ours.values()]
    texts, outside = list[tuple[str, str]](), list[tuple[str, str]]()
    for name, (path, module) in seen.items():
        root = roots[name.partition(".")[0]]
        counted = module.text if by_text else module.syntax
        if name.partition(".")[0] == project:
            file = f"{project}/{path.relative_to(root).as_posix()}"
            files.append((file, counted))
            texts.append((file, module.text))
        else:
            outside.append((path.relative_to(root.parent).as_posix(), counted))
    imports = external - set(sys.stdlib_module_names) - {"__future__"}
    modules = tuple(sorted((name, path) for name, (path, _) in seen.items()))
    return Code(tuple(sorted(files)), tuple(sorted(texts)), tuple(sorted(outside)), tuple(sorted(imports)), modules)


def _setter(project: str | None, roots: _Roots, seen: Mapping[str, object]) -> list[str]:
    """The project's `pipeline.py`, where it is not among the modules that a function reaches, and acts on one of them.

    It is imported before any node runs, so what it sets in a module (`config.x = 1`) is what the node finds there.
    """
    name = f"{project}.pipeline"
    path = _find(name, roots) if project is not None and name not in seen else None
    if path is None or not (acts_on := read_source(str(path)).acts_on):
        return []
    for level, target, names in read_source(str(path)).imports:
        module = _absolute(name, level, target, is_package=False)
        if any(
            module in seen or f"{module}.{taken}" in seen
            for taken, bound in names or ((target, target.partition(".")[0]),)
            if bound in acts_on
        ):
            return [name]
    return []


def _add_outside(name: str, roots: _Roots) -> bool:
    """Whether the source of a module is read; where it lies outside the project, that joins the roots."""
    top = name.partition(".")[0]
    if top not in roots and (lies := _outside(top, tuple(sys.path))) is not None:
        roots[top] = lies
    return top in roots


@lru_cache(1024)
def _outside(top: str, path: tuple[str, ...]) -> Path | None:
    """Where the source of a package lies, its folder or its only file, that is on the path and no distribution.

    Args:
        top: Its name.
        path: `sys.path`, on which the answer depends.
    """
    if top in sys.stdlib_module_names or top == "__main__":
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # a loaded module may have no spec, or an odd one
        return None
    if spec is None:
        return None
    at = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    if not at or (is_library(at[0]) and version_of(top) is not None):
        return None
    return Path(at[0]).parent if spec.has_location and spec.submodule_search_locations else Path(at[0])


class _Ours(NamedTuple):
    """A module of drivetrain's: its path below the package's parent, its digest, and what it imports."""

    file: str
    digest: str
    reaches: tuple[str, ...]
    imports: frozenset[str]


@lru_cache(4096)
def _ours(name: str) -> _Ours | None:
    """One of our own modules, remembered: they do not change while a process runs, as a user's may in a notebook.

    Nor does the next process compute it again, unless this module changed, or what decides where its imports lead.
    """
    path = _find_ours(name)
    if path is None:
        return None
    packages, stamp = _packages(), stamp_of(str(path))
    key, decides = f"module {path}", (*stamp, packages.digest)
    match remembered(key, decides):
        case [file, content, reaches, imports]:
            return _Ours(file, content, tuple(reaches), frozenset(imports))
    begin = time.time_ns()
    module = read_ours(path)
    targets, external = list[str](), set[str]()
    for target, names in _targets(module, name, path.name == "__init__.py"):
        if _is_ours(target):
            targets += _modules(target, names, _Roots({_DRIVETRAIN: _HOME}))
        else:
            external.add(target.partition(".")[0])
    file = f"{_DRIVETRAIN}/{path.relative_to(_HOME).as_posix()}"
    ours = _Ours(file, module.digest, tuple(dict.fromkeys(targets)), frozenset(external))
    remember(key, decides, max(stamp.newest, packages.newest), begin, [*ours[:3], sorted(external)])
    return ours


class _Packages(NamedTuple):
    """What decides which module an import of ours leads to, as a digest, and when that last changed (ns).

    It leads to the files that there are, which the dates of folders tell, or on to what an `__init__` re-exports.
    """

    digest: str
    newest: int


@cache
def _packages() -> _Packages:
    stamps: list[tuple[str, Stamp, Stamp]] = []
    folders = [str(_HOME)]
    for folder in folders:  # which grows meanwhile
        try:
            stamps.append((folder, stamp_of(f"{folder}/__init__.py"), stamp_of(folder)))
        except OSError:  # not a package
            continue
        with os.scandir(folder) as entries:
            folders += [entry.path for entry in entries if "." not in entry.name and entry.is_dir()]
    newest = max(stamp.newest for _, *both in stamps for stamp in both)
    return _Packages(digest("drivetrain-packages-v1", sorted(stamps)), newest)


def defines(ref: FunctionRef) -> bool:
    """Whether the referenced module's text binds the attribute at its top level (or star-imports something)."""
    known = names(ref)
    return ref.name.partition(":")[2] in known or "*" in known


def names(ref: FunctionRef) -> list[str]:
    """What the referenced module's text binds at its top level; "*" for what it star-imports."""
    path = _find(ref.module, _Roots({package_name(ref.project): ref.project or _HOME}))
    return [] if path is None else sorted(read_source(str(path)).names)


def environment(imports: Iterable[str]) -> dict[str, object]:
    """What besides code and inputs can change a result: Python, platform, versions of the imported distributions.

    With JAX among them also XLA's flags and the processor's model, which change a program's last bits.
    """
    names = sorted(set(imports) - _CARRIERS - {_TYPES})
    facts: dict[str, object] = {
        "python": sys.version.split()[0],  # as `platform` says it, whose import takes longer than all of this
        "platform": f"{sys.platform}-{os.uname().machine}",
        "distributions": {name: version for name in names if (version := version_of(name))},
    }
    if sys.flags.optimize:  # no assertions
        facts["optimize"] = sys.flags.optimize
    if "jax" in names:
        facts["xla_flags"] = os.environ.get("XLA_FLAGS", "")
        facts["jax_options"] = {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("JAX_") and not any(word in name for word in _SILENT_OPTIONS)
        }
        facts["jaxlib"] = version_of("jaxlib")
        facts["processor"] = _processor()
    return facts


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        import platform

        return platform.processor()
    wanted = ("model name", "flags", "cpu family", "model", "CPU part", "Features")
    facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines if ":" in line}
    return digest("drivetrain-processor-v1", [facts.get(name, "") for name in wanted])[:16]


def _targets(module: SourceFile | OurSource, name: str, is_package: bool) -> Iterable[tuple[str, tuple[str, ...]]]:
    """What a module imports, as (full name of a module, the names taken from it)."""
    for level, target, names in module.imports:
        yield _absolute(name, level, target, is_package), tuple(taken for taken, _ in names)


def _absolute(name: str, level: int, target: str, is_package: bool) -> str:
    if not level:
        return target
    parts = name.split(".")
    return ".".join([*parts[: max(0, len(parts) - level + is_package)], *([target] if target else [])])


def _modules(target: str, names: Iterable[str], roots: _Roots) -> list[str]:
    """The modules that an import reaches. Of `from a import b`, b may be a module or an attribute: files decide."""
    if _is_neutral(target) and target != _DRIVETRAIN:
        return []
    path = _find(target, roots)
    names = list(names)
    if path is not None and path.name == "__init__.py" and _is_ours(target) and names and "*" not in names:
        return [module for name in names for module in _origin(target, name, path, roots)]
    inside = [f"{target}.{name}" for name in names]
    return [module for module in (target, *inside) if _find(module, roots) is not None]


def _origin(package: str, name: str, init: Path, roots: _Roots) -> list[str]:
    """The module of ours that really defines a name which a package's `__init__` re-exports.

    Following the package itself would make every module that it re-exports part of the closure, and any change of ours
    would invalidate every user's cache.
    """
    for level, target, names in read_ours(init).imports:
        for taken, bound in names:
            source = _absolute(package, level, target, is_package=True)
            if bound == name and source != package:
                return _modules(source, [taken], roots)
    inside = f"{package}.{name}"
    return [inside if _find(inside, roots) is not None else package]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == _DRIVETRAIN


def _find(name: str, roots: _Roots) -> Path | None:
    return _find_ours(name) if _is_ours(name) else roots.find(name)


@lru_cache(4096)
def _find_ours(name: str) -> Path | None:
    """As `_find`, remembered: our own files do not change while a process runs, as a user's may in a notebook."""
    path = "/".join((str(_HOME), *name.split(".")[1:]))
    return _first_file(path, (".py", "/__init__.py") if name != _DRIVETRAIN else ("/__init__.py",))


def _first_file(path: str, suffixes: Iterable[str]) -> Path | None:
    return next((Path(path + each) for each in suffixes if os.path.isfile(path + each)), None)  # noqa: PTH113


def _is_neutral(name: str) -> bool:
    top, _, rest = name.partition(".")
    # The root's lazy face names every package; what is really used is imported by its own name.
    return top == _DRIVETRAIN and (not rest or rest.partition(".")[0] in _NEUTRAL)
