"""The signature of a call: which arguments are tensors of which shape, which are Python values, and what changed."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np

from ...errors import InputError
from .._caller import caller
from .values import Spec

Static = tuple[Any, tuple[tuple[int, Any], ...]]
"""A PyTreeDef of (args, kwargs), and the leaves that are Python values by their place: hashable, for jax.jit."""

ARRAYS: Final = (jax.Array, np.ndarray, np.generic)


class _Same:
    """An object known by identity, held weakly where it can be: a graph does not keep a model alive."""

    __slots__ = ("key", "read")

    def __init__(self, value: object) -> None:
        self.key = id(value)
        try:
            self.read: Callable[[], object] = weakref.ref(value)
        except TypeError:
            self.read = lambda: value

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self.key != other.key:
            return False
        mine = self.read()
        return mine is not None and mine is other.read()


def split(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], tensor: tuple[type, ...] = ARRAYS
) -> tuple[Static, list[Any]]:  # Any: arguments
    """Take a call's arguments apart into Python values and tensors: the leaves of the types `tensor`."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, tensor)]
    if len(tensors) == len(leaves):
        return (tree, ()), tensors
    return (tree, tuple((at, _key(leaf)) for at, leaf in enumerate(leaves) if not isinstance(leaf, tensor))), tensors


def _key(value: Any) -> Any:  # Any: a Python value
    if isinstance(value, float):
        return float, value.hex()  # 0.0 and -0.0 are two, nan is one
    by: object = type(value).__hash__
    if by is None or by is object.__hash__:
        return _Same, _Same(value)
    try:
        hash(value)
    except TypeError:  # a tuple-like with something mutable in it
        return _Same, _Same(value)
    return type(value), value  # the type, as 1 == True == 1.0


def _value(key: Any) -> Any:  # Any: a Python value
    kind, value = key
    if kind is float:
        return float.fromhex(value)
    return value.read() if kind is _Same else value


def joined(static: Static, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call again: (args, kwargs)."""
    tree, values = static
    fixed = dict(values)
    rest = iter(tensors)
    leaves = [_value(fixed[index]) if index in fixed else next(rest) for index in range(len(fixed) + len(tensors))]
    args, kwargs = jax.tree.unflatten(tree, leaves)
    return args, kwargs


class Parameters:
    """The parameters of a function: their names, and calls brought to one form."""

    def __init__(self, fn: Callable[..., Any]) -> None:  # Any: the user's function
        self.signature = inspect.signature(fn)
        parameters = self.signature.parameters.values()
        self.names = [
            item.name for item in parameters if item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        ]
        self.rest = next((item.name for item in parameters if item.kind is item.VAR_POSITIONAL), "args")
        self._defaults = [self.signature.parameters[name].default for name in self.names]
        self._named = {
            item.name: item.default
            for item in parameters
            if item.kind is item.KEYWORD_ONLY and item.default is not item.empty
        }

    def canonical(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with defaults filled in and named arguments in their places, so that equal calls look equal.

        Raises:
            TypeError: The arguments do not fit, as Python says it.
        """
        if kwargs:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.args, bound.kwargs
        missing = self._defaults[len(args) :]
        if inspect.Parameter.empty in missing:
            self.signature.bind(*args)  # raises
        return (*args, *missing), self._named

    def path(self, keys: Sequence[Any]) -> str:  # Any: JAX's path entries
        """The name of a leaf of (args, kwargs) as the user would write it."""
        side, first, *below = keys
        if getattr(side, "idx", 0) == 1:
            return f"{first.key}{jax.tree_util.keystr(tuple(below))}"
        name = self.names[first.idx] if first.idx < len(self.names) else f"{self.rest}[{first.idx - len(self.names)}]"
        return f"{name}{jax.tree_util.keystr(tuple(below))}"


@dataclass(frozen=True)
class Argument:
    """One leaf of a signature: `spec` for a tensor, `value` (as Python shows it) for what is not a tensor."""

    name: str
    spec: Spec | None
    value: str | None = None

    def __str__(self) -> str:
        return str(self.spec) if self.spec is not None else str(self.value)


@dataclass(frozen=True)
class CallSignature:
    """What one trace of a function is for."""

    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return ", ".join(f"{item.name}: {item}" for item in self.arguments)


def signature_of(parameters: Parameters, static: Static, tensors: Sequence[Any]) -> CallSignature:
    """Describe a call.

    Raises:
        InputError: An argument is a numpy array of text or objects.
    """
    tree, values = static
    fixed = dict(values)
    rest = iter(tensors)
    marks = [fixed[index] if index in fixed else next(rest) for index in range(len(fixed) + len(tensors))]
    paths, _ = jax.tree_util.tree_flatten_with_path(jax.tree.unflatten(tree, range(len(marks))))
    arguments = []
    for index, (keys, _) in enumerate(paths):
        name = parameters.path(keys)
        if index in fixed:
            arguments.append(Argument(name, None, repr(_value(fixed[index]))[:60]))
            continue
        arguments.append(Argument(name, Spec.of(marks[index])))
    return CallSignature(tuple(arguments))


def refuse_objects(parameters: Parameters, args: Any, kwargs: Any) -> None:  # Any: the call
    """Raise InputError that names the argument which is a numpy array of text or objects."""
    for keys, leaf in jax.tree_util.tree_flatten_with_path((args, kwargs))[0]:
        if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind not in "biufcV":
            raise InputError(
                f"argument {parameters.path(keys)!r} is a numpy array of {leaf.dtype}, which no tensor can hold",
                fix="give numbers; text belongs into the columns of a preprocessing function",
                where=caller(),
            )


@dataclass(frozen=True)
class ArgumentChange:
    """One argument that differs between two signatures, and what makes it need no trace of its own."""

    name: str
    before: str
    after: str
    fix: str

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


_STRUCTURE: Final = "call it with the same arguments each time"


def changes(new: CallSignature, old: CallSignature) -> list[ArgumentChange]:
    """What differs between two signatures, by argument."""
    before = {item.name: item for item in old.arguments}
    after = {item.name: item for item in new.arguments}
    differences = []
    for name, item in after.items():
        other = before.get(name)
        if other is None:
            differences.append(ArgumentChange(name, "not given", str(item), _STRUCTURE))
        elif other != item:
            differences.append(_change(name, other, item))
    return differences + [
        ArgumentChange(name, str(item), "not given", _STRUCTURE) for name, item in before.items() if name not in after
    ]


def _change(name: str, old: Argument, new: Argument) -> ArgumentChange:
    a, b = old.spec, new.spec
    if a is None and b is None:
        number = str(new.value).lstrip("-")[:1].isdigit()
        fix = (
            f"pass {name} as an array, jnp.asarray(…), unless the graph must be another for each value"
            if number
            else f"each value of {name} has a graph of its own: give it few"
        )
    elif a is None or b is None:
        fix = f"pass {name} as an array each time, or as a Python value each time"
    elif a.dtype != b.dtype:
        fix = f"cast {name} to one dtype before the call"
    elif len(a.shape) != len(b.shape):
        fix = f"give {name} one rank"
    elif a.shape != b.shape:
        dims = tuple(size if size == other_size else None for size, other_size in zip(a.shape, b.shape, strict=True))
        fix = f"one trace for all sizes: input_signature=[TensorSpec({dims}, '{b.dtype}')], or reduce_retracing=True"
    else:
        words = ["the dtype of a Python number" if spec.weak else "a dtype of its own" for spec in (a, b)]
        return ArgumentChange(
            name, f"{old}, {words[0]}", f"{new}, {words[1]}", f"make {name} by jnp.asarray(…, '{b.dtype}')"
        )
    return ArgumentChange(name, str(old), str(new), fix)


def retraced(name: str, new: CallSignature, earlier: Sequence[CallSignature]) -> str:
    """Say what made the latest trace necessary, against the earlier signature that is nearest."""
    nearest = min((changes(new, old) for old in reversed(earlier)), key=len)
    shown = "; ".join(map(str, nearest)) or "an object is another one, which looks the same"
    same = (
        ["objects count by identity: pass the same one, or give its class __eq__ and __hash__"] if not nearest else []
    )
    fixes = "".join(f"\n  fix: {fix}" for fix in [*dict.fromkeys(change.fix for change in nearest), *same])
    return f"{name} was traced {len(earlier) + 1} times; last, {shown}{fixes}"
