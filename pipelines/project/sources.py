"""What is known of a Python file from its text: the digest of its syntax, its imports, its names.

To parse a file costs a hundred times as much as to look at its date. So what was computed is remembered for the user,
in `$XDG_CACHE_HOME/drivetrain/sources-*.json`, by path, size, dates and inode. A file that changed within two seconds
of being read is not remembered: a second change within the same tick of the clock would not show in its dates. The
memory may be deleted at any time, and a damaged one is begun anew.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import hashlib
import json
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...errors import BuildError
from . import syntax

PIPELINE: Final = "pipeline.py"
"""The module of a project that is imported before any node runs."""
_SETTLED: Final = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its dates, on any file system."""
_MOST: Final = 8_192
"""Files remembered; beyond that, those read longest ago are forgotten."""
_LONGEST_PATH: Final = 255
_QUOTED: Final = re.compile(r"'([^']+)'")
_PARSING: Final = threading.Lock()  # branches of a run read code at once; ast.parse of Python 3.11 may fail then


class SourceFile(NamedTuple):
    """A module as its text says.

    Attributes:
        text: SHA-256 of the file.
        syntax: SHA-256 of what Python runs of it (`syntax.syntax_digest`).
        reads_text: Whether it may look at docstrings, source or line numbers.
        imports: (relative level, module, ((name, bound as), ...)) of each import statement.
        names: What it binds at its top level; `*` where it star-imports.
        acts_on: Of what a pipeline.py imports, what it stores into (`config.x = 1`), or mentions in a bare expression.
        texts: Literals that may name a file or a folder, sorted.
    """

    text: str
    syntax: str
    reads_text: bool
    imports: tuple[tuple[int, str, tuple[tuple[str, str], ...]], ...]
    names: frozenset[str]
    acts_on: frozenset[str] = frozenset()
    texts: tuple[str, ...] = ()


def read_source(path: str) -> SourceFile:
    """What is known of a file, remembered while its dates, size and inode stay the same.

    Raises:
        BuildError: It is named as Python and is not.
        OSError: It cannot be read.
    """
    return _known(path, stamp_of(path))


class Stamp(NamedTuple):
    """What shows that a file is another: its size, the times of the last change of content and of the inode (ns)."""

    size: int
    modified: int
    changed: int
    inode: int

    @property
    def newest(self) -> int:
        """When anything of it last changed (ns)."""
        return max(self.modified, self.changed)


def stamp_of(path: str) -> Stamp:
    """The stamp of a file or folder.

    Raises:
        OSError: There is none.
    """
    stat = os.stat(path)  # noqa: PTH116 - asked for hundreds of files
    return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


@lru_cache(4096)  # in a notebook, each edit of a module is another stamp: what was read before must not stay for ever
def _known(path: str, stamp: Stamp) -> SourceFile:
    match remembered(path, stamp):
        case [text, parsed, reads_text, imports, names, acts_on, texts]:
            taken = tuple((level, name, tuple(map(tuple, bound))) for level, name, bound in imports)
            return SourceFile(text, parsed, reads_text, taken, frozenset(names), frozenset(acts_on), tuple(texts))
    begin = time.time_ns()
    source = _computed(path, Path(path).read_bytes())
    if stamp_of(path) == stamp:
        remember(
            path, stamp, stamp.newest, begin, [*source[:4], sorted(source.names), sorted(source.acts_on), source.texts]
        )
    return source


def remembered(key: str, stamp: Sequence[int | str]) -> Any:  # Any: JSON, looked at by who asks
    """What was computed from files that have this stamp still; None where nothing, or not for certain."""
    return _memory().get(key, stamp)


def remember(key: str, stamp: Sequence[int | str], newest: int, begin: int, value: object) -> None:
    """Remember what was computed from files.

    Args:
        key: Of what.
        stamp: By which a change of these files shows.
        newest: When the last of them changed (ns).
        begin: When they began to be read (ns).
        value: The result, as JSON.
    """
    _memory().put(key, stamp, newest, begin, value)


def _computed(path: str, text: bytes) -> SourceFile:
    if not path.endswith(".py"):  # compiled: an extension module, or one without its source
        content = hashlib.sha256(text).hexdigest()
        return SourceFile(content, content, False, (), frozenset())
    with _parsing():
        try:
            return _parsed(text, Path(path).name == PIPELINE)
        except SyntaxError as error:
            raise BuildError(f"{error.msg}", where=f"{path}:{error.lineno}", fix="correct the line") from None
        except ValueError as error:  # NUL bytes
            raise BuildError(f"it is not Python: {error}", where=path, fix="save it as text") from None


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    """One at a time, and without the garbage collector, which takes as long as all else here and finds nothing."""
    with _PARSING:
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if collects:
                gc.enable()


@lru_cache(512)  # the same text comes again where a file was copied or checked out anew, or an edit was undone
def _parsed(text: bytes, is_pipeline: bool) -> SourceFile:
    tree = ast.parse(text)
    imports: list[tuple[int, str, tuple[tuple[str, str], ...]]] = []
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple((alias.name, alias.asname or alias.name) for alias in node.names)
            imports.append((node.level, node.module or "", names))
    if b"import_module" in text:
        imports += [(len(name) - len(name.lstrip(".")), name.lstrip("."), ()) for name in _by_name(tree)]
    imported = {bound for _, name, names in imports for _, bound in names or ((name, name.partition(".")[0]),)}
    acts_on = imported.intersection(_acted_on(tree)) if is_pipeline else ()
    return SourceFile(
        hashlib.sha256(text).hexdigest(),
        syntax.syntax_digest(tree),
        syntax.reads_text(text),
        tuple(imports),
        frozenset(_bound(tree.body)),
        frozenset(acts_on),
        tuple(sorted(set(_texts(tree)))),
    )


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Every statement, those within functions and branches too; an import is never part of an expression."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, block, ()))
        for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(branch.body)


def _by_name(tree: ast.Module) -> Iterable[str]:
    """The modules that calls such as `import_module("a.b")` name, where the name is a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == "import_module" and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _texts(tree: ast.Module) -> Iterable[str]:
    """Literals that may be a path or a part of one, and what stands in quotes in them, as a file does in SQL."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Of f"{folder}/a.csv" the literal is "/a.csv".
            for text in (node.value, node.value.strip("/'\""), *_QUOTED.findall(node.value)):
                if text.isprintable() and 0 < len(text) <= _LONGEST_PATH:
                    yield text


def _bound(body: list[ast.stmt]) -> Iterable[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            parts = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
            yield from _bound(parts + [s for handler in getattr(node, "handlers", []) for s in handler.body])


def _acted_on(tree: ast.Module) -> Iterable[str]:
    """The names through which a module stores anywhere, and those in bare expressions at its top level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target: ast.expr = node
            while isinstance(target, ast.Attribute | ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                yield target.id
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            yield from (node.id for node in ast.walk(statement) if isinstance(node, ast.Name))


class _Memory:
    """The file of what is remembered: a line with the SHA-256 of the rest, then JSON: {key: [stamp, read at, value]}.

    Processes that write at once replace each other's file whole; what one of them loses is computed once more.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries: dict[str, Any] = _loaded(file)  # Any: JSON, looked at when it is asked for
        self._new = False
        self._lock = threading.Lock()

    def get(self, key: str, stamp: Sequence[int | str]) -> Any:  # Any: JSON
        match self._entries.get(key):
            case [list(known), int(), value] if known == list(stamp):
                return value
        return None

    def put(self, key: str, stamp: Sequence[int | str], newest: int, begin: int, value: object) -> None:
        if begin - newest > _SETTLED:
            with self._lock:
                self._entries[key] = [list(stamp), begin, value]
                self._new = True

    def save(self) -> None:
        """Write down what was computed since the last time, for later processes; nothing where nothing was."""
        if not self._new:
            return
        with self._lock:
            self._new = False
            entries = {**_loaded(self._file), **self._entries}
            newest = sorted(entries, key=lambda path: entries[path][1], reverse=True)[:_MOST]
            body = json.dumps({path: entries[path] for path in newest}, separators=(",", ":")).encode()
        incoming = self._file.with_suffix(f".{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):  # a folder that cannot be written to costs the time of parsing, no more
            self._file.parent.mkdir(parents=True, exist_ok=True)
            incoming.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            incoming.replace(self._file)
        with contextlib.suppress(OSError):
            incoming.unlink(missing_ok=True)


def _loaded(file: Path) -> dict[str, Any]:  # Any: JSON
    """The entries of a memory that this user wrote whole; none of any other."""
    try:
        if os.stat(file).st_uid != os.getuid():  # noqa: PTH116
            return {}
        checksum, _, body = file.read_bytes().partition(b"\n")
    except OSError:
        return {}
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return {}
    entries: dict[str, Any] = json.loads(body)
    return entries


@cache
def _memory() -> _Memory:
    """The memory of this Python and of these very lines: another version computes anew, into a file of its own.

    So does another checkout, since each process reads the whole of its file.
    """
    version = hashlib.sha256(repr((sys.version_info[:2], __file__)).encode())
    for file in (__file__, syntax.__file__):
        version.update(Path(file).read_bytes())
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home, as in a container
        folder = Path(os.devnull)
    memory = _Memory(folder / "drivetrain" / f"sources-{version.hexdigest()[:12]}.json")
    atexit.register(memory.save)  # once: each time the whole of the file is read and written
    return memory
