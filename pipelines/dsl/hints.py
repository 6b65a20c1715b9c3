"""Type expressions: whether a value fits one, whether one fits another, how one is spelled."""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from ...digest import is_deep
from ...errors import InputError
from ...metadata import Artifact
from ..project.files import SqlQuery
from .symbolic import SymbolicValue

_SHOWN: Final = 200
"""Characters of a refused value in its message."""


def is_artifact(hint: object) -> bool:
    """Whether a type expression is an artifact type."""
    return isinstance(hint, type) and issubclass(hint, Artifact)


_JSON = (bool, int, float, str, type(None), list, dict, Mapping, Sequence, Any, Literal)


def is_value(hint: Any) -> bool:
    """Whether a type expression is of JSON values."""
    return all((typing.get_origin(member) or member) in _JSON for member in members(hint))


def is_writable(hint: Any) -> bool:
    """Whether a command line or a settings file can give some value of this type, other than None."""
    kinds = [typing.get_origin(member) or member for member in members(hint)]
    return any(
        kind in _JSON or kind in (tuple, object) or typing.is_typeddict(kind)
        for kind in kinds
        if kind is not type(None)
    )


def members(hint: Any) -> list[Any]:
    """A union's members, or the hint alone."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return list(typing.get_args(hint)) if union else [hint]


def takes_query(hint: Any) -> bool:
    """Whether a parameter of this type may be the rows of a query."""
    return SqlQuery in members(hint)


def accepts(hint: Any, value: object) -> bool:
    """Whether a JSON value, or the type of one to come, fits a type expression. An int is a float, a bool neither."""
    if isinstance(value, SymbolicValue):
        return fits(value.hint, hint)
    if hint is Any or hint is object:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(member, value) for member in arguments)
    if origin is Literal:
        # 1 == True == 1.0 in Python, and JSON keeps them apart.
        return any(value == option and type(value) is type(option) for option in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    base = origin or hint
    if isinstance(base, type) and issubclass(base, Mapping):
        if not isinstance(value, Mapping):
            return False
        return not arguments or all(accepts(arguments[0], k) and accepts(arguments[1], v) for k, v in value.items())
    if base is tuple and isinstance(value, (list, tuple)):
        if not arguments or arguments[-1] is Ellipsis:
            return all(accepts(arguments[0], item) for item in value) if arguments else True
        return len(arguments) == len(value) and all(map(accepts, arguments, value))
    if isinstance(base, type) and issubclass(base, Sequence) and base is not str:
        if not isinstance(value, (list, tuple)):
            return False
        return not arguments or all(accepts(arguments[0], item) for item in value)
    return isinstance(value, base) if isinstance(base, type) else True


def fits(hint: Any, wanted: Any) -> bool:
    """Whether every JSON value of type `hint` is one of type `wanted`; a `list` without an item type fits any list."""
    if hint is Any or wanted is Any or wanted is object or hint == wanted:
        return True
    if len(members(hint)) > 1:
        return all(fits(member, wanted) for member in members(hint))
    if len(members(wanted)) > 1:
        return any(fits(hint, member) for member in members(wanted))
    base, outer = typing.get_origin(hint) or hint, typing.get_origin(wanted) or wanted
    if base is Literal:
        return all(accepts(wanted, value) for value in typing.get_args(hint))
    # To Python a bool is an int; to a pipeline it is none, so it is taken out before subclasses are looked at.
    if not isinstance(base, type) or not isinstance(outer, type) or (base is bool and outer in (int, float)):
        return False
    if not (issubclass(base, outer) or (base is int and outer is float)):
        return False
    if base is str or not typing.get_args(hint) or not typing.get_args(wanted):
        return True
    return all(map(fits, typing.get_args(hint), typing.get_args(wanted)))


def comparable(left: Any, right: Any, *, ordered: bool) -> bool:
    """Whether values of two types can be equal or, where `ordered`, one of them less than the other."""
    kinds, others = _kinds(left), _kinds(right)
    if object in kinds | others or (not ordered and type(None) in others):
        return True
    return bool(kinds & others - ({dict, type(None), bool} if ordered else set()))


def _kinds(hint: Any) -> set[type]:
    """The groups of types whose values compare with each other, e.g. int and float; `object` stands for any type."""
    kinds: set[type] = set()
    for member in members(hint):
        if typing.get_origin(member) is Literal:
            kinds.update(*(_kinds(type(each)) for each in typing.get_args(member)))
            continue
        base = typing.get_origin(member) or member
        sorts = {int: float, tuple: list, Sequence: list, Mapping: dict}
        # `Any` is a class since Python 3.11.
        kinds.add(sorts.get(base, base) if isinstance(base, type) and base is not Any else object)
    return kinds


def spell(hint: Any) -> str:
    """A type expression as a user wrote it."""
    return hint.__name__ if isinstance(hint, type) else re.sub(r"\b(typing|collections\.abc)\.", "", str(hint))


def read_value(name: str, hint: Any, value: object) -> object:
    """A parameter's value as it is given; text, as of a command line, is read as JSON where the type is not text.

    Raises:
        InputError: It is of another type.
    """
    if isinstance(value, str) and not accepts(hint, value):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = {"true": True, "false": False, "none": None}.get(str(value).lower(), value)
    if is_deep(value):
        raise InputError(f"the parameter {name!r} is nested too deeply", fix="nest 200 levels at most")
    if not accepts(hint, value):
        shown = text if len(text := repr(value)) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise InputError(f"the parameter {name!r} takes {spell(hint)}, not {shown}", fix="give a value of that type")
    if not _is_finite(value):
        raise InputError(
            f"the parameter {name!r} is {value!r:.60}", fix="give a finite number, which JSON has a word for"
        )
    return value


def _is_finite(value: object) -> bool:
    """Whether a value holds neither NaN nor an infinity, at any depth: JSON has no word for them."""
    if isinstance(value, float):
        return math.isfinite(value)
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return all(map(_is_finite, inside))
