"""What a function changes that a loop or branch of the graph calls: refused where it was there before the block.

A block of the graph is traced once or twice, however often it will run, so a counter that a function called
there counts up, or a list it appends to, would be wrong without a word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

import jax

from ...errors import InputError
from ...user_code import is_users
from .._caller import caller
from .branches import STAGED

Block = Callable[..., Any]  # Any: a function of a block's, of ours around one of the user's


def changes(what: str, how: str, root: str, owner: Callable[[], Any]) -> None:  # Any: the object changed
    """Before a statement that changes something. Raises InputError where a block of the graph would hide it.

    Args:
        what: As the user wrote it.
        how: "name" (a global or nonlocal name is assigned), "set" (an attribute or item), "call" (append and such) or
            "next".
        root: The name that it begins with.
        owner: Gives what is changed; of a name anything.
    """
    # A change is harmless where no block around knew the variable or its value before: it then ends with the trace.
    blocks = STAGED.get()
    if not blocks or (how != "name" and not _changeable(how, owner)):
        return
    places = dict(zip(owner.__code__.co_freevars, owner.__closure__ or (), strict=True))
    if root in places and not any(_before(block, places[root], how) for block in blocks):
        return
    done = "called" if how in ("call", "next") else "assigned"
    raise InputError(
        f"{what!r} is {done} by a function that a loop or branch of the graph calls: it was there before, and would "
        "change when the graph is traced, not when it runs",
        fix="let that function return what it makes, and keep it in a local variable (an array: xs.at[i].set(value))",
        where=caller(),
    )


def _changeable(how: str, owner: Callable[[], Any]) -> bool:
    try:
        target = owner()
    except Exception:  # what is wrong with it, the statement itself will say
        return False
    if how == "set":
        return not isinstance(target, jax.Array)
    return isinstance(target, Iterator if how == "next" else (list, dict, set, deque))


def _before(block: Block, variable: CellType, how: str) -> bool:
    """Whether a variable, or for a change in place what it holds, was there before a block that is being traced."""
    cells = _reached(block)
    if any(cell is variable for cell in cells):
        return True
    content = _content(variable)
    return how != "name" and any(part is content for cell in cells for part in _parts(_content(cell)))


def _reached(block: Block) -> list[CellType]:
    """The variables that a block reads and that functions it reads know, but for those that it assigns itself."""
    seen: dict[int, CellType] = {}
    assigned: set[int] = set()
    functions: list[Any] = [block]
    known: set[int] = set()
    while functions:
        fn = functions.pop()
        if id(fn) in known:
            continue
        known.add(id(fn))
        if fn.__name__.startswith(("ag__get_", "ag__set_")):  # reads or writes the block's own variables
            assigned.update(id(cell) for cell in fn.__closure__ or ())
            continue
        for cell in fn.__closure__ or ():
            seen[id(cell)] = cell
            functions += _functions(_content(cell))
        if is_users(fn.__code__.co_filename):
            for name in fn.__code__.co_names:
                functions += _functions(fn.__globals__.get(name))
    return [cell for identity, cell in seen.items() if identity not in assigned]


def _functions(value: Any) -> Iterator[FunctionType]:  # Any: what a variable holds
    function = value.__func__ if isinstance(value, MethodType) else value
    if isinstance(function, FunctionType):
        yield function


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # no value yet
        return None


def _parts(value: Any) -> Iterator[Any]:
    """An object, what it is a method of, and its attributes."""
    if value is None or isinstance(value, (bool, int, float, str, FunctionType, jax.Array)):
        return
    yield value
    if isinstance(value, MethodType):
        yield value.__self__
    yield from getattr(value, "__dict__", {}).values()
