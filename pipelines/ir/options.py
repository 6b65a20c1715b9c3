"""The options of a node: retries, limits, what it needs of a machine, its environment. Each is declared here, once.

An option is a field of `NodeOptions`, declared by `option(...)`, and a line of `OptionArguments`, by which a type
checker knows what `.options(...)` takes. All else follows from the field: the signature and the help of
`.options(...)`, what it refuses, the JSON in the IR, and which runners refuse a pipeline that sets it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict

from ...errors import BuildError
from ..project.functions import user_line
from .expressions import Json

Need: TypeAlias = Literal["", "order", "pauses", "process", "machine", "devices", "replicas"]
"""What a runner must be able to do to keep an option.

"order": launch one ready task before another. "pauses": wait itself between two attempts. "process": run a task in a
process of its own, which it can end. "machine": give a task a share of a machine's cores and memory. "devices": give it
accelerators that no other task sees. "replicas": run several processes for one task. "": nothing, every runner keeps
it.
"""

_Read: TypeAlias = Callable[[str, Any], Any]  # name and value as the user wrote it -> the value as it is stored
_KEY: Final = "option"

_DECIMAL = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_UNITS = {"": 1, **_DECIMAL, **_BINARY, **{f"{unit}B": size for unit, size in _BINARY.items()}}


class Option(NamedTuple):
    """What an option is, beside its name, type and default.

    Attributes:
        help: One or two sentences for whoever calls `.options(...)`.
        read: Checks a value as the user wrote it and gives it as it is stored.
        needs: What a runner must be able to do to keep it.
        phrase: What a node with this option has, e.g. "a timeout": for the message of a runner that refuses it.
        decode: Reads the value from the IR's JSON.
    """

    help: str
    read: _Read
    needs: Need = ""
    phrase: str = ""
    decode: Callable[[Json], Any] = lambda value: value


def option(default: Any, *, help: str, read: _Read, **more: Any) -> Any:  # noqa: A002 - the field's word
    """Declare an option; a field of a dataclass. Any: its type is that of the annotation."""
    return field(default=default, metadata={_KEY: Option(help, read, **more)})


def parse_bytes(amount: int | str) -> int:
    """Bytes from a number or from text such as "512MB" or "4GiB".

    Raises:
        BuildError: It is not an amount of memory.
    """
    if isinstance(amount, int) and not isinstance(amount, bool):
        return amount
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(amount))
    if not match or match[2] not in _UNITS:
        raise BuildError(
            f"{amount!r} is not an amount of memory", where=user_line(), fix='write e.g. "512MB" or "4GiB"'
        )
    return int(float(match[1]) * _UNITS[match[2]])


def _number(least: float, most: float = math.inf, *, whole: bool = False) -> _Read:
    """Reads a finite number from `least` to `most`, which is stored as a float, or as an int where `whole`."""
    limits = (
        "a number" if least == -math.inf else f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
    )

    def read(name: str, number: Any) -> float | int:
        if not _is_finite(number) or not least <= number <= most:
            raise BuildError(f"{name}={number!r:.60} makes no sense", where=user_line(), fix=f"give {limits}")
        if not whole:
            return float(number)
        if not float(number).is_integer():
            raise BuildError(f"{name}={number!r} makes no sense", where=user_line(), fix="give a whole number")
        return int(number)

    return read


def _read_memory(name: str, amount: Any) -> int:
    return int(_number(0, whole=True)(name, parse_bytes(amount)))


def _read_timeout(name: str, seconds: Any) -> float | None:
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if seconds is not None and (not _is_finite(seconds) or seconds <= 0):
        raise BuildError(f"{name}={seconds!r} makes no sense", where=user_line(), fix="give seconds above 0, or None")
    return seconds  # type: ignore[no-any-return]  # a number, as was checked; an int stays one in the IR


def _read_retry_on(name: str, errors: Any) -> tuple[str, ...]:
    """The names of exceptions, or of the one predicate."""
    each = tuple(errors) if isinstance(errors, (list, tuple)) else (errors,)
    if wrong := [error for error in each if not isinstance(error, (str, type))]:
        raise BuildError(
            f"{name}={wrong[0]!r:.60} makes no sense",
            where=user_line(),
            fix='give types of exceptions, their names, or the name of a predicate, "module:function"',
        )
    names = tuple(error if isinstance(error, str) else error.__name__ for error in each)
    if len(names) > 1 and (predicates := [error for error in names if ":" in error]):
        raise BuildError(
            f"{name}={predicates[0]!r} is a predicate, which decides alone",
            where=user_line(),
            fix="let it look at the exception's type too, and name nothing beside it",
        )
    return names


def _read_env(_: str, variables: Any) -> tuple[tuple[str, object], ...]:
    """The variables in their order; their values are encoded once they are known to belong to a pipeline."""
    pairs = tuple((variables or {}).items())
    for name, text in pairs:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BuildError(
                f"{name!r} is not a valid name of an environment variable", where=user_line(), fix="use A-Z, 0-9, _"
            )
        if isinstance(text, (int, float, list, dict)) or text is None or (isinstance(text, str) and "\0" in text):
            raise BuildError(f"the environment variable {name} is {text!r:.60}", where=user_line(), fix="give text")
    return pairs


def _is_finite(number: object) -> bool:
    # By comparison: `math.isfinite` takes no whole number beyond what a float holds.
    return isinstance(number, (int, float)) and not isinstance(number, bool) and abs(number) <= sys.float_info.max


@dataclass(frozen=True)
class NodeOptions:
    """How a node is carried out. Only `env` may change what its artifacts hold, and is part of the cache key.

    The fields are the values as they are stored, e.g. `memory` in bytes; `OptionArguments` is what users may write.
    """

    retries: int = option(
        0,
        help="How often it is tried again after a failure; never after one that the user must fix.",
        read=_number(0, whole=True),
    )
    backoff: float = option(1.0, help="Seconds before the first retry.", read=_number(0))
    backoff_factor: float = option(2.0, help="By what they grow for each further retry.", read=_number(1))
    backoff_max: float = option(3600.0, help="Seconds before a retry at most.", read=_number(0))
    # 0.2 is what gRPC's connection back-off takes. It only ever shortens, so that `backoff_max` holds and pauses that
    # have grown to it are spread too.
    jitter: float = option(
        0.2,
        help="The fraction of a pause, 0 to 1, by which it is shortened at most, at random, so that tasks which failed "
        "together are not all tried again at once. The same run, node and attempt draw the same number.",
        read=_number(0, 1),
        needs="pauses",
        phrase="a jitter of its own",
    )
    retry_on: tuple[str, ...] = option(
        (),
        help='Only after these exceptions (types or names), or where a predicate, "module:function", says so of the '
        "exception.",
        read=_read_retry_on,
        decode=tuple,
    )
    timeout: float | None = option(
        None,
        help="Seconds after which an attempt is ended; a runner that cannot end it refuses.",
        read=_read_timeout,
        needs="process",
        phrase="a timeout",
    )
    priority: int = option(
        0,
        help="Among ready nodes, the highest goes first.",
        read=_number(-math.inf, whole=True),
        needs="order",
        phrase="a priority",
    )
    cpus: float = option(0.0, help="Cores it needs.", read=_number(0), needs="machine", phrase="cores of its own")
    memory: int = option(
        0,
        help='Bytes it needs, or text such as "4GiB".',
        read=_read_memory,
        needs="machine",
        phrase="memory of its own",
    )
    accelerators: int = option(
        0,
        help="Devices it needs for itself.",
        read=_number(0, whole=True),
        needs="devices",
        phrase="devices of its own",
    )
    replicas: int = option(
        1,
        help="How many processes do its work together, each with all that a node may ask for: on Kubeflow.",
        read=_number(1, whole=True),
        needs="replicas",
        phrase="several processes at its work",
    )
    env: tuple[tuple[str, Json], ...] = option(
        (),
        help="Environment variables of its process; a value may be `dt.secret(...)`.",
        read=_read_env,
        needs="process",
        phrase="environment variables of its own",
        decode=lambda pairs: tuple((name, text) for name, text in pairs),
    )

    def updated(self, arguments: Mapping[str, object]) -> NodeOptions:
        """These options with others, as a user wrote them, in place of their own.

        Raises:
            BuildError: A value makes no sense.
        """
        return replace(self, **{name: OPTIONS[name].read(name, value) for name, value in arguments.items()})

    def changed(self) -> list[str]:
        """The names of the options that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]

    def to_json(self) -> dict[str, Json]:
        """What differs from the defaults, by name: so an option that is new changes no pipeline without it."""
        return {name: getattr(self, name) for name in self.changed()}

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> NodeOptions:
        """The options that `to_json` wrote.

        Raises:
            KeyError: There is an option that this release does not know.
        """
        return cls(**{name: OPTIONS[name].decode(value) for name, value in body.items()})


OPTIONS: Final[Mapping[str, Option]] = {each.name: each.metadata[_KEY] for each in fields(NodeOptions)}
"""All options by name."""


class OptionArguments(TypedDict, total=False):
    """The options as users may write them. A type checker needs the types spelled out: a test compares the names."""

    retries: int
    backoff: float
    backoff_factor: float
    backoff_max: float
    jitter: float
    retry_on: str | type[BaseException] | Sequence[str | type[BaseException]]
    timeout: float | timedelta | None
    priority: int
    cpus: float
    memory: int | str
    accelerators: int
    replicas: int
    env: Mapping[str, object] | None
