"""Whose code an exception comes from, and what it says in plain words: the user's own file and line, and the fix."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

from .errors import DrivetrainError, InputError, missing_module, suggest

_TYPED: Final = ("<ipython-input", "<python-input", "<stdin>")
"""What a person types has no file."""
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/")
_PROJECTS: Final[set[str]] = set()
"""The folders of projects that lie where libraries do, each with a slash at its end."""
_NOWHERE: Final = object()
_CONTRACTION: Final = r"contracting dimensions to have the same shape, got \((\d+),\) and \((\d+),\)"


@cache
def _ours() -> tuple[str, ...]:
    """Drivetrain's own folders and files. In a checkout, tests and examples lie beside them, as users' code does."""
    home = Path(__file__).parent
    return (*(f"{init.parent}/" for init in home.glob("*/__init__.py")), *(str(file) for file in home.glob("*.py")))


@cache
def _pythons_folders() -> tuple[str, ...]:
    """Of the standard library, and of commands: the file `drivetrain` that starts a verb is not its user's code."""
    return tuple({f"{sysconfig.get_path(kind)}/" for kind in ("stdlib", "platstdlib", "scripts")})


@lru_cache(4096)
def is_users(file: str) -> bool:
    """Whether a file holds the code of neither drivetrain nor a library."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    if is_drivetrains(file):
        return False
    inside = next((file.removeprefix(project) for project in _PROJECTS if file.startswith(project)), file)
    return not is_library(inside) and not inside.startswith(_pythons_folders())


def is_library(file: str) -> bool:
    """Whether a file lies where distributions are installed."""
    return any(folder in file for folder in _LIBRARIES)


@lru_cache(4096)
def is_drivetrains(file: str) -> bool:
    """Whether a file holds code of drivetrain's."""
    return file.startswith(_ours())


def is_project(folder: Path) -> None:
    """Say that a folder is a user's project: its files are his, even where it was installed among the libraries."""
    inside = f"{folder}/"
    if inside not in _PROJECTS and (is_library(inside) or inside.startswith(_pythons_folders())):
        _PROJECTS.add(inside)
        is_users.cache_clear()


def users_line() -> str | None:
    """Give "file:line" of the nearest of the user's frames that called us; None where there is none."""
    frame = sys._getframe(1)
    while not is_users(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def raised_at(trace: TracebackType | None) -> str | None:
    """Give "file:line" of the innermost of the user's frames in a traceback; None where there is none."""
    frame = _users_frame(trace)
    return None if frame is None else f"{frame[0].f_code.co_filename}:{frame[1]}"


def defined_at(fn: Callable[..., Any]) -> str | None:  # Any: any function
    """Give "file:line" of a function's definition; None of what is not a function of Python's."""
    code = getattr(fn, "__code__", None)
    return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def as_mistake(error: BaseException) -> DrivetrainError | None:
    """The user's mistake that an exception comes from, as an error that says how to fix it.

    Returns:
        The error itself where it is one of ours, else one that names the line of the user's code that raised it; None
        where the exception comes from drivetrain's own code, or was not raised for a mistake.
    """
    if isinstance(error, DrivetrainError):
        if error.where is None and (line := raised_at(error.__traceback__)) is not None:
            return DrivetrainError(error.message, fix=error.fix, where=line)
        return error
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return None
    syntax_of_users = isinstance(error, SyntaxError) and error.filename is not None and is_users(error.filename)
    if not syntax_of_users and not _raised_by_user(error.__traceback__):
        return missing_module(error)
    return mistake(error)


def mistake(error: BaseException, *, fix: str | None = None, where: str | None = None) -> InputError:
    """An exception of the user's code as an error that names the line and the cause in plain words.

    Args:
        error: What was raised.
        fix: What to do, where the caller knows it better than the exception.
        where: "file:line" in place of the innermost of the user's in its traceback.
    """
    text, advice = explain(error)
    line = where or raised_at(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename:
        line = f"{error.filename}:{error.lineno}"
    return InputError(text, fix=fix or advice, where=line)


@contextmanager
def mistakes_named(failed: str) -> Iterator[None]:
    """Have an exception of the user's code within begin with what failed; an error of ours passes as it is.

    Raises:
        InputError: "FAILED: MESSAGE", with the line and the fix that `mistake` knows.
    """
    try:
        yield
    except DrivetrainError:
        raise
    except Exception as error:  # the user's own code may raise anything
        cause = mistake(error)
        raise InputError(f"{failed}: {cause.message}", fix=cause.fix, where=cause.where) from error


def explain(error: BaseException) -> tuple[str, str | None]:
    """What an exception of the user's code says, in plain words, and what to do where the exception itself tells."""
    for kind, words in _WORDS.items():
        if kind in (each.__name__ for each in type(error).__mro__) and (said := words(error)) is not None:
            return said
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception as second:  # a user's exception whose __str__ raises
        return f"{name}, whose text cannot be read: {type(second).__name__}", None
    if type(error).__module__.partition(".")[0] == "jax":
        text = text.partition("\n")[0]  # a page of explanations follows, about JAX itself
    return f"{name}: {text}" if text else f"{name}, without a message", None


def folded(error: BaseException) -> str:
    """The traceback with the user's frames alone; what lies between them is counted, and named by its packages."""
    lines, hidden = ["Traceback (most recent call last):\n"], list[str]()

    def fold() -> None:
        if hidden:
            packages = ", ".join(dict.fromkeys(hidden))
            lines.append(f"  … {len(hidden)} {'call' if len(hidden) == 1 else 'calls'} in {packages}\n")
            hidden.clear()

    # Of the exceptions that led to it, the first: it was raised where the mistake is.
    first = error
    while (cause := first.__cause__ or (None if first.__suppress_context__ else first.__context__)) is not None:
        first = cause
    for summary in traceback.extract_tb(first.__traceback__):
        if is_users(summary.filename):
            fold()
            lines += traceback.format_list([summary])
        else:
            hidden.append(_package(summary.filename))
    fold()
    return "".join([*lines, *traceback.format_exception_only(first)])


def _package(file: str) -> str:
    """The package that a file belongs to, as it is imported."""
    if is_drivetrains(file):
        return __name__.partition(".")[0]
    for folder in _LIBRARIES:
        if folder in file:
            return file.partition(folder)[2].partition("/")[0].removesuffix(".py")
    return "Python"


def _headline(error: BaseException) -> str:
    """The first line of one of Python's own exceptions."""
    return (str(error).splitlines() or [""])[0]


def _users_frame(trace: TracebackType | None) -> tuple[FrameType, int, int] | None:
    """The innermost of the user's frames, its line and its instruction."""
    innermost = None
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            innermost = (trace.tb_frame, trace.tb_lineno, trace.tb_lasti)
        trace = trace.tb_next
    return innermost


def _raised_by_user(trace: TracebackType | None) -> bool:
    """Whether the innermost frame that is not a library's is the user's: drivetrain's own faults are not his."""
    users = False
    while trace is not None:
        file, name = trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name
        # An attribute that an artifact has not is asked for by whoever called `__getattr__`.
        users = is_users(file) or (users and (not is_drivetrains(file) or name == "__getattr__"))
        trace = trace.tb_next
    return users


# --- what the kinds of exceptions mean ---

_Words = Callable[[Any], tuple[str, str | None] | None]  # Any: an exception of that kind


def _name_error(error: NameError) -> tuple[str, str | None]:
    if isinstance(error, UnboundLocalError):
        name = str(error).partition("'")[2].partition("'")[0]
        return f"{name!r} is used before it has a value (UnboundLocalError)", "assign it above this line"
    frame = _users_frame(error.__traceback__)
    names = [] if frame is None else [*frame[0].f_locals, *frame[0].f_globals, *dir(builtins)]
    for module in ("metadata", "components"):  # if they are loaded: artifact types and components by their names
        if error.name in getattr(sys.modules.get(f"{__package__}.{module}"), "__all__", ()):
            return f"there is no name {error.name!r} (NameError)", f"from {__package__}.{module} import {error.name}"
    return f"there is no name {error.name!r} (NameError)", _close(error.name or "", names) or "define it, or import it"


def _missing_module(error: ModuleNotFoundError) -> tuple[str, str | None]:
    if (extra := missing_module(error)) is not None:
        return extra.message, extra.fix
    name, frame = error.name or "", _users_frame(error.__traceback__)
    text = f"there is no module {name!r} (ModuleNotFoundError)"
    if frame is not None:
        # A project is a package: its modules import each other by a dot.
        folder, first = Path(frame[0].f_code.co_filename).parent, name.partition(".")[0]
        if (folder / f"{first}.py").is_file() or (folder / first / "__init__.py").is_file():
            return text, f"it is a module of the project, which is a package: write `from .{name} import …`"
    loaded = (module.partition(".")[0] for module in sys.modules)
    known = sorted({module for module in (*sys.stdlib_module_names, *loaded) if not module.startswith("_")})
    import difflib

    near = difflib.get_close_matches(name, known, 1, 0.8)
    return text, f"did you mean {near[0]!r}?" if near else f"install it: pip install {name.partition('.')[0]}"


def _import_error(error: ImportError) -> tuple[str, str | None] | None:
    name = str(error).partition("cannot import name '")[2].partition("'")[0]
    if not name or error.name is None:
        return None
    if "partially initialized" in str(error):
        return (
            f"{error.name} has no {name!r} yet: the modules import each other (ImportError)",
            "move what both need into a module of its own",
        )
    names = [each for each in dir(sys.modules.get(error.name)) if not each.startswith("_")]
    return f"{error.name} has no {name!r} (ImportError)", _close(name, names) or "check the name"


def _attribute_error(error: AttributeError) -> tuple[str, str | None] | None:
    text = _headline(error)
    if not error.name or "has no attribute" not in text:
        return None  # somebody's own words
    names = [each for each in dir(error.obj) if not each.startswith("_")]
    return f"{text} (AttributeError)", _close(error.name, names)


def _syntax_error(error: SyntaxError) -> tuple[str, str | None]:
    return f"{error.msg} ({type(error).__name__})", None  # its text names the file and line again


def _key_error(error: KeyError) -> tuple[str, str | None] | None:
    """The mapping is found by the expression that failed: `batch["lable"]` of a frame that knows `batch`."""
    if len(error.args) != 1:
        return None
    key, (node, frame) = error.args[0], _failed(error)
    mapping = _value(node.value, frame) if isinstance(node, ast.Subscript) and frame is not None else _NOWHERE
    if not isinstance(mapping, Mapping) or not isinstance(node, ast.Subscript):
        return f"there is no key {key!r:.100} (KeyError)", None
    names = [name for name in mapping if isinstance(name, str)]
    fix = suggest(key, names) if isinstance(key, str) and len(names) <= 100 else None
    return f"there is no {key!r:.100} in {ast.unparse(node.value):.60} (KeyError)", fix


def _type_error(error: TypeError) -> tuple[str, str | None] | None:
    """An argument that the function does not take, or that is missing: with those it takes."""
    text = _headline(error)
    if widths := re.search(_CONTRACTION, text):
        wide, wanted = widths.groups()
        return f"{wide} values a row meet a layer or matrix that takes {wanted} (TypeError)", f"let it take {wide}"
    if "argument" not in text:
        return None
    node, frame = _failed(error)
    function = _value(node.func, frame) if isinstance(node, ast.Call) and frame is not None else _NOWHERE
    if not callable(function):
        return None
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    text = text.replace(".__init__()", "()").partition(". Did you mean")[0]  # Python 3.13 guesses, too
    named = getattr(function, "__name__", type(function).__name__)
    if f"{named}()" not in text and f"{type(function).__name__}." not in text:
        return f"{text} (TypeError)", None  # raised by what that function calls
    unexpected = text.partition("unexpected keyword argument '")[2].rstrip("'")
    fix = (unexpected and _close(unexpected, names)) or f"it takes {', '.join(names) or 'none'}"
    return f"{text} (TypeError)", fix


def _exit(error: SystemExit) -> tuple[str, str | None]:
    return f"the code called exit({'' if error.code is None else repr(error.code)})", "raise an error that says why"


def _traced(what: str, fix: str) -> _Words:
    return lambda error: (f"{what} ({type(error).__name__})", fix)


_WORDS: Final[Mapping[str, _Words]] = {
    "SyntaxError": _syntax_error,
    "NameError": _name_error,
    "ModuleNotFoundError": _missing_module,
    "ImportError": _import_error,
    "AttributeError": _attribute_error,
    "KeyError": _key_error,
    "TracerBoolConversionError": _traced(
        "`if`, `while`, `and`, `or` and `not` need one value, and JAX traces this code before there are any",
        "use jnp.where(condition, a, b), or jax.lax.cond; & | ~ in place of and, or, not",
    ),
    "TracerArrayConversionError": _traced(
        "NumPy needs values, and JAX traces this code before there are any", "use jax.numpy in place of numpy"
    ),
    "TracerIntegerConversionError": _traced(
        "an index or a range needs a value, and JAX traces this code before there are any",
        "use jnp.take, or jax.lax.fori_loop",
    ),
    "NonConcreteBooleanIndexError": _traced(
        "x[condition] has a length that depends on values, and JAX traces this code before there are any",
        "use jnp.where(condition, x, 0)",
    ),
    "InconclusiveDimensionOperation": _traced(
        "this depends on how many rows there are, which is not known when JAX traces this code",
        "leave the rows the first dimension, e.g. reshape((-1, 2)); no int() and no if on the number of rows",
    ),
    "ConcretizationTypeError": _traced(
        "float(), int(), .item() and the like need a value, and JAX traces this code before there are any",
        "keep it an array; convert what is returned",
    ),
    "TypeError": _type_error,
    "SystemExit": _exit,
}
"""By the name of the type, since JAX is not imported here; the more special before the more general."""


def _close(name: str, names: Iterable[str]) -> str | None:
    close = suggest(name, list(dict.fromkeys(names)))
    return close if close.startswith("did you mean") else None


def _failed(error: BaseException) -> tuple[ast.expr | None, FrameType | None]:
    """The expression of the user's code that raised it, and its frame; None, None where that is not known."""
    if (innermost := _users_frame(error.__traceback__)) is None:
        return None, None
    frame, _, instruction = innermost
    positions = list(frame.f_code.co_positions())
    first, last, start, end = positions[instruction // 2]
    if first is None or last is None or start is None or end is None:
        return None, None
    lines = [linecache.getline(frame.f_code.co_filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # first: it may be the only one
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"".join(lines).decode(), mode="eval").body, frame
    except (SyntaxError, ValueError):
        return None, None


def _value(node: ast.expr, frame: FrameType) -> Any:  # Any: whatever the user's variable holds
    """What a name, or an attribute of one, means in a frame; a mark of ours where it means nothing there."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id, _NOWHERE))
    if isinstance(node, ast.Attribute):
        try:
            return getattr(_value(node.value, frame), node.attr, _NOWHERE)
        except Exception:  # a property of the user's may raise anything, and this is only for advice
            return _NOWHERE
    return _NOWHERE
