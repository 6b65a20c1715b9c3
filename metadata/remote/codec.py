"""Values to JSON and back by the types that functions declare: records are objects of their fields, times numbers.

What comes back is built from nothing but these types, whoever sent the JSON: a value of another type is refused.
"""

from __future__ import annotations

import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from ...digest import canonical_json
from ...errors import InputError
from .. import finding
from ..rows import microseconds, when

Hint: TypeAlias = Any  # a type, as annotations have it
_Coder: TypeAlias = "Callable[[Any], Any]"

_INT64: Final = range(-(2**63), 2**63)
_SETS: Final = (set, frozenset, Set)
_LISTS: Final = (list, Sequence, Iterable, Collection)
_MAPPINGS: Final = (dict, Mapping)
_LATE: Final = {"Page": finding.Page, "RecordQuery": finding.RecordQuery}  # named under TYPE_CHECKING


class OperationTypes:
    """What a function takes and gives, in JSON.

    Args:
        function: Its first parameter is the store, or what holds it: it is not sent; nor is a function that is passed.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        self._first, *names = self._signature.parameters
        hints = typing.get_type_hints(function, localns=_LATE)
        self._hints = {name: hints[name] for name in names if not _is_function(hints[name])}
        self._needed = {name for name in self._hints if self._signature.parameters[name].default is MISSING_ARGUMENT}
        self._result = hints["return"]

    def arguments_to_json(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments after the first, by name; raises TypeError where the function does not take them."""
        bound = self._signature.bind(None, *args, **kwargs).arguments
        return {name: encoder(hint, strict=True)(bound[name]) for name, hint in self._hints.items() if name in bound}

    def arguments_from_json(self, values: object) -> dict[str, Any]:
        """The arguments by name.

        Raises:
            InputError: They are not those of the function.
        """
        if not isinstance(values, dict) or not values.keys() <= self._hints.keys() or not self._needed <= values.keys():
            raise InputError(f"the arguments are to be {', '.join(self._hints) or 'none'}", fix="use the same release")
        arguments = {}
        for name, value in values.items():
            try:
                arguments[name] = decoder(self._hints[name])(value)
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
                raise InputError(f"the argument {name} cannot be read: {error!s:.200}") from None
        return arguments

    def result_to_json(self, value: Any) -> Any:
        """What the function gave."""
        return encoder(self._result)(value)

    def result_from_json(self, value: Any) -> Any:
        """What the function gave there; raises ValueError, TypeError or LookupError where it is something else."""
        return decoder(self._result)(value)


MISSING_ARGUMENT: Final = inspect.Parameter.empty


@functools.cache
def signature_of(function: Callable[..., Any]) -> OperationTypes:
    """The signature of a function, read once."""
    return OperationTypes(function)


@functools.cache
def encoder(hint: Hint, *, strict: bool = False) -> _Coder:
    """What makes JSON of a value of a type.

    Args:
        hint: The type.
        strict: Whether what may be any JSON is made canonical, which raises InputError if it is not JSON.
    """
    origin: Any = get_origin(hint)
    args = get_args(hint)
    code_of = functools.partial(encoder, strict=strict)
    if hint is Any or (origin in _MAPPINGS and args == (str, Any)):
        return _plain if strict else _same
    if hint is datetime:
        return microseconds
    if hint in (str, int, float, bool, type(None), object) or origin is Literal:
        return _same
    if _is_union(hint):
        return _union_encoder(args, code_of)
    if origin is tuple and args[-1] is not Ellipsis:
        coders = [code_of(each) for each in args]
        return lambda value: [code(item) for code, item in zip(coders, value, strict=True)]
    if origin in (*_LISTS, *_SETS, tuple):
        code = code_of(args[0])
        return (lambda value: list(value)) if code is _same else (lambda value: [code(item) for item in value])
    if origin in _MAPPINGS:
        code = code_of(args[1])
        if args[0] is str:
            return (
                (lambda value: dict(value)) if code is _same else lambda value: {k: code(v) for k, v in value.items()}
            )
        key = code_of(args[0])
        return lambda value: [[key(k), code(v)] for k, v in value.items()]
    coders_by_name = [(name, code_of(type_)) for name, type_, _ in _fields(hint)]

    def record(value: Any) -> dict[str, Any]:
        return {name: code(getattr(value, name)) for name, code in coders_by_name}

    return record


@functools.cache
def decoder(hint: Hint) -> _Coder:
    """What makes a value of a type of JSON; it raises ValueError, TypeError or LookupError where that is no such."""
    origin: Any = get_origin(hint)
    args = get_args(hint)
    if hint in _CHECKS:
        return _CHECKS[hint]
    if hint in (Any, object):
        return _same
    if origin is Literal:
        return _CHECKS[str]  # whoever takes it asks whether it is one of them, as of a caller in the same process
    if _is_union(hint):
        return _union_decoder(args)
    if origin is tuple and args[-1] is not Ellipsis:
        decoders = [decoder(each) for each in args]
        return lambda value: tuple(code(item) for code, item in zip(decoders, _list(value), strict=True))
    if origin in (*_LISTS, *_SETS, tuple):
        make = tuple if origin is tuple else set if origin in _SETS else list
        code = decoder(args[0])
        return lambda value: make([code(item) for item in _list(value)])
    if origin in _MAPPINGS:
        code = decoder(args[1])
        if args[0] is str:
            return lambda value: {name: code(item) for name, item in _object(value).items()}
        key = decoder(args[0])
        return lambda value: {key(k): code(item) for k, item in map(_pair, _list(value))}
    cls = origin or hint
    decoders_by_name = {name: decoder(type_) for name, type_, _ in _fields(hint)}
    needed = {name for name, _, is_needed in _fields(hint) if is_needed}

    def record(value: Any) -> Any:
        known = {name: item for name, item in _object(value).items() if name in decoders_by_name}
        if not needed <= known.keys():
            raise ValueError(f"a {cls.__name__} needs {', '.join(sorted(needed - known.keys()))}")
        return cls(**{name: decoders_by_name[name](item) for name, item in known.items()})

    return record


def _union_encoder(args: tuple[Hint, ...], code_of: Callable[[Hint], _Coder]) -> _Coder:
    classes = {each: code_of(each) for each in args if is_dataclass(each)}
    others = [each for each in args if each not in classes and each is not type(None)]
    if not classes:
        only = code_of(others[0]) if len(others) == 1 else _same
        return only if only is _same else lambda value: None if value is None else only(value)
    if len(classes) == 1 and not others:
        code = next(iter(classes.values()))
        return lambda value: None if value is None else code(value)
    # Of several records the value says which it is.
    return lambda value: {type(value).__name__: classes[type(value)](value)} if type(value) in classes else value


def _union_decoder(args: tuple[Hint, ...]) -> _Coder:
    named = {each.__name__: decoder(each) for each in args if is_dataclass(each) and isinstance(each, type)}
    others = [each for each in args if not is_dataclass(each) and each is not type(None)]
    nullable = type(None) in args
    several = len(named) > 1 or (bool(named) and bool(others))

    def decode(value: Any) -> Any:
        if value is None and nullable:
            return None
        if several and isinstance(value, dict) and len(value) == 1 and next(iter(value)) in named:
            name, item = next(iter(value.items()))
            return named[name](item)
        if named and not several:
            return next(iter(named.values()))(value)
        for other in others:
            try:
                return decoder(other)(value)
            except (ValueError, TypeError):
                continue
        raise ValueError(f"{value!r:.80} is none of {', '.join(map(str, args))}")

    return decode


def _fields(hint: Hint) -> list[tuple[str, Hint, bool]]:
    """Name, type, and whether it has no default, of each field of a dataclass (a generic one too) or a named tuple."""
    origin: Any = get_origin(hint)
    cls = origin or hint
    if is_dataclass(cls):
        needed = {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(cls)}
    elif (defaults := getattr(cls, "_field_defaults", None)) is not None:
        needed = {name: name not in defaults for name in cls._fields}
    else:
        raise TypeError(f"{hint} cannot be sent")
    hints = typing.get_type_hints(cls)
    stands_for = dict(zip(getattr(cls, "__parameters__", ()), get_args(hint), strict=False))
    return [(name, _filled(hints[name], stands_for), is_needed) for name, is_needed in needed.items()]


def _filled(hint: Hint, stands_for: Mapping[Any, Hint]) -> Hint:
    if isinstance(hint, TypeVar):
        return stands_for[hint]
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(stands_for[each] for each in parameters)] if parameters else hint


def _is_union(hint: Hint) -> bool:
    origin: Any = get_origin(hint)
    return origin in (Union, types.UnionType)


def _is_function(hint: Hint) -> bool:
    origin: Any = get_origin(hint)
    return origin is Callable or getattr(hint, "_is_protocol", False)


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    return None if value is None else json.loads(canonical_json(value))


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} is no {kind.__name__}")
    return value


def _int(value: Any) -> int:
    if type(value) is not int or value not in _INT64:
        raise ValueError(f"{value!r:.80} is not a 64-bit integer")
    return value


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.80} is not a number")
    return float(value)


def _list(value: Any) -> list[Any]:
    return typing.cast("list[Any]", _exactly(list, value))


def _object(value: Any) -> dict[str, Any]:
    return typing.cast("dict[str, Any]", _exactly(dict, value))


def _pair(value: Any) -> tuple[Any, Any]:
    first, second = _list(value)
    return first, second


_CHECKS: Final[dict[Hint, _Coder]] = {
    str: functools.partial(_exactly, str),
    bool: functools.partial(_exactly, bool),
    type(None): functools.partial(_exactly, type(None)),
    int: _int,
    float: _float,
    datetime: lambda value: when(_int(value)),
}
