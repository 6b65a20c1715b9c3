"""A function's syntax tree, and a function made anew of a changed tree, in the user's file and lines."""

from __future__ import annotations
import __future__

import ast
import inspect
import linecache
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any

HELPER = "ag__"

Definition = ast.FunctionDef | ast.Lambda


def definition(fn: FunctionType) -> Definition | None:
    """A fresh copy of the syntax tree that a function was compiled from; None where there is no source."""
    code = fn.__code__
    text = "".join(linecache.getlines(code.co_filename, fn.__globals__))
    if not text:
        return None
    try:
        candidates = [node for node in _functions(text) if _is(node, code)]
    except SyntaxError:  # the file has changed since it was imported
        return None
    if len(candidates) > 1:  # several lambdas on a line
        candidates = sorted((node for node in candidates if _covers(node, code)), key=_span)[:1]
    return deepcopy(candidates[0]) if len(candidates) == 1 else None


@lru_cache(4)  # a file with many functions is asked for each of them
def _functions(text: str) -> Sequence[Definition]:
    return tuple(node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.Lambda)))


def _is(node: Definition, code: CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))])
    return name == code.co_name and first == code.co_firstlineno and parameters(node) == _parameters(code)


def _covers(node: Definition, code: CodeType) -> bool:
    """Whether all instructions are of what stands in a function's body."""
    first, last = _span(node)[1:]
    spans = [(span[::2], span[1::2]) for span in code.co_positions() if None not in span and span[3]]
    return bool(spans) and all(first <= (*start,) and (*end,) <= last for start, end in spans)


def _span(node: Definition) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Its size in lines and columns, where its body begins, and where it ends."""
    body = node.body if isinstance(node, ast.Lambda) else node
    last = (body.end_lineno or body.lineno, body.end_col_offset or 0)
    size = (last[0] - body.lineno, last[1] - body.col_offset)
    return size, (body.lineno, body.col_offset), last


def parameters(node: Definition) -> list[str]:
    """The names of all parameters, in the order of the compiler."""
    args = node.args
    named = [arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]]
    return named + [arg.arg for arg in (args.vararg, args.kwarg) if arg is not None]


def _parameters(code: CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return list(code.co_varnames[:count])


def compiled(tree: ast.FunctionDef, fn: FunctionType) -> CodeType:
    """The code of a changed tree; its free variables are those of the function it came from, and the helper."""
    free = [HELPER, *fn.__code__.co_freevars]
    outer = ast.parse("def ag__factory():\n  pass")
    factory = outer.body[0]
    assert isinstance(factory, ast.FunctionDef)
    # Assigned here, these are free in the function inside: the compiler then takes them from cells.
    factory.body = [ast.parse(f"{' = '.join(free)} = None").body[0], tree]
    ast.fix_missing_locations(outer)
    flags = fn.__code__.co_flags & __future__.annotations.compiler_flag
    code = compile(outer, fn.__code__.co_filename, "exec", dont_inherit=True, flags=flags)
    function_code = _named(_named(code, "ag__factory"), tree.name)
    return function_code.replace(co_name=fn.__code__.co_name, co_qualname=fn.__code__.co_qualname)


def function_of_code(
    code: CodeType, fn: FunctionType, helper: object
) -> Callable[..., Any]:  # Any: the user's function
    """A function of the changed code, with the globals, closure cells and defaults of the one it came from."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    cells[HELPER] = CellType(helper)
    function = FunctionType(
        code, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells[name] for name in code.co_freevars)
    )
    function.__kwdefaults__ = fn.__kwdefaults__
    function.__qualname__ = fn.__qualname__
    return function


def _named(code: CodeType, name: str) -> CodeType:
    return next(item for item in code.co_consts if isinstance(item, CodeType) and item.co_name == name)


def is_generator(code: CodeType) -> bool:
    """Whether a call makes a generator or coroutine: those are left as they are."""
    return bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
