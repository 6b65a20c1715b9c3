"""@function: a Python function as graphs, one traced for each signature of its arguments."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, overload

import jax
from jax.experimental import checkify

from ...errors import DrivetrainError, InputError
from ...user_code import raised_at
from .._caller import caller
from .autograph import CONVERTING, convert
from .branches import CHECKED, STAGED
from .concrete import ConcreteFunction
from .gradients import recorded
from .options import DEFAULTS, LoopOptions, loop_options
from .signatures import (
    ARRAYS,
    CallSignature,
    Parameters,
    Static,
    joined,
    refuse_objects,
    retraced,
    signature_of,
    split,
)
from .symbolic import TensorSpec, generalised, structs
from .values import Spec, having, is_traced, leaked

Fn = Callable[..., Any]  # Any: the user's function

_EAGER: Final[ContextVar[bool]] = ContextVar("drivetrain_eager", default=False)


class RetraceWarning(UserWarning):
    """A function is traced again and again; the text says what changed, and what to do."""


@contextmanager
def eager() -> Iterator[None]:
    """While this lasts, functions run as the Python they are, line by line, on concrete arrays: for a debugger.

    JAX's own jit is off as well, so breakpoints inside of `jax.jit`, `lax.scan` or `jax.vmap` stop too.
    """
    with having(_EAGER, True), jax.disable_jit():
        yield


@dataclass(frozen=True)
class _Trace:
    static: Static
    structs: tuple[jax.ShapeDtypeStruct, ...]
    signature: CallSignature


class _CheckedCall(NamedTuple):
    """What a function with checks gives: a tree of arrays, so that a tape can differentiate through it."""

    error: checkify.Error
    results: Any  # the user's


class Function:
    """What `@function` makes of a function; see there."""

    def __init__(
        self,
        fn: Fn,
        *,
        input_signature: Sequence[Any] | None = None,  # Any: TensorSpecs in trees of the user's
        autograph: bool = True,
        reduce_retracing: bool = False,
        max_steps: int | None = None,
        checks: bool = False,
        retrace_warning: int = 5,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.python_function = fn
        self.parameters = Parameters(fn)
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._options: LoopOptions = loop_options(max_steps=max_steps)
        self.input_signature = input_signature
        self._autograph = autograph
        self._reduce = reduce_retracing
        self._checks = checks
        self._warn_at = retrace_warning
        self._traces: list[_Trace] = []
        self._concrete: dict[Any, ConcreteFunction] = {}  # by static values and avals
        self._signatures: dict[Static | None, ConcreteFunction] = {}
        # With reduce_retracing: what was seen first, then the trace for all sizes, or None if there can be none.
        self._relaxed: dict[Any, ConcreteFunction | tuple[Spec, ...] | None] = {}
        self._listening = True
        self._jit = jax.jit(self._trace, static_argnums=0)
        self._checked_jit = jax.jit(checkify.checkify(self._trace), static_argnums=0) if checks else None

    # --- calls ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: the user's arguments and results
        """Run the graph for these arguments, traced first if there is none yet; a `Tape` around records the call."""
        return self.call(args, kwargs)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, bound: int = 0) -> Any:  # Any: as above
        """As `__call__`; the first `bound` arguments, an instance, stand before the input signature."""
        if _EAGER.get():
            return recorded(self.python_function, args, kwargs)
        results = recorded(lambda *args, **kwargs: self._run_graph(args, kwargs, bound), args, kwargs)
        # Checks are looked at out here: while a tape differentiates the call, nobody knows whether they hold.
        return self._verified(results) if isinstance(results, _CheckedCall) else results

    def _run_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: int) -> Any:  # Any: as above
        args, kwargs = self.parameters.canonical(args, kwargs)
        static, tensors = split(args, kwargs)
        concrete = None
        if self.input_signature is not None:
            concrete = self._signed(args, kwargs, bound)
        elif self._reduce:
            concrete = self._general(static, tensors)
        if concrete is not None and self._checked_jit is None:
            return concrete.run(static, tensors)
        try:
            if self._checked_jit is None:
                return self._jit(static, *tensors)
            if concrete is None:
                return _CheckedCall(*self._checked_jit(static, *tensors))
            concrete.fit(static, tensors)
            self._listening = False  # its program has no checks; this is not a new trace
            try:
                return _CheckedCall(*self._checked_jit(static, *tensors))
            finally:
                self._listening = True
        except jax.errors.UnexpectedTracerError as error:
            raise leaked(self._name, error) or error from error
        except TypeError:
            refuse_objects(self.parameters, args, kwargs)
            raise

    def __repr__(self) -> str:
        return f"Function({self._name}: {self.trace_count} traces)"

    def eager(self, *args: Any, **kwargs: Any) -> Any:  # Any: as above
        """Run the Python function itself, line by line, as under `eager()`."""
        with eager():
            return self.call(args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # Any: itself, or bound
        return self if instance is None else BoundFunction(self, instance)

    def _verified(self, checked: _CheckedCall) -> Any:  # Any: the user's results
        """The results, where every assertion held; in a trace the outer function's checks tell, if it has any."""
        if any(is_traced(leaf) for leaf in jax.tree.leaves(checked)):
            if CHECKED.get():
                checkify.check_error(checked.error)
            return checked.results
        text = checked.error.get()
        if text is not None:
            where, _, message = text.removesuffix(" (`check` failed)").partition("\x1f")
            raise InputError(f"an assertion of {self._name} failed: {message}", where=where)
        return checked.results

    # --- traces --------------------------------------------------------------------------------------------------

    def _trace(self, static: Static, *tensors: Any) -> Any:  # Any: tracers; the user's results
        """The function that jax.jit traces: runs once for a signature."""
        if not self._listening:
            return self._run(static, tensors)
        noted = self._note(static, tensors)
        try:
            return self._run(static, tensors)
        except BaseException:
            self._traces = [item for item in self._traces if item is not noted]  # there is no such graph
            raise

    def _run(self, static: Static, tensors: Sequence[Any]) -> Any:  # Any: as above
        args, kwargs = joined(static, tensors)
        try:
            with (
                having(CONVERTING, self._autograph),
                having(STAGED, ()),
                having(CHECKED, self._checks),
                having(DEFAULTS, self._options),
            ):
                run = convert(self.python_function) if self._autograph else self.python_function
                results = run(*args, **kwargs)
        except DrivetrainError:
            raise
        except jax.errors.UnexpectedTracerError as error:
            raise leaked(self._name, error) or error from error
        except (
            jax.errors.JAXTypeError,
            jax.errors.JAXIndexError,
            jax.errors.InconclusiveDimensionOperation,
            RecursionError,
        ) as error:
            raise InputError(
                f"{self._name}: {str(error).splitlines()[0]}",
                fix=self._advice(error),
                where=raised_at(error.__traceback__),
            ) from error
        for keys, leaf in jax.tree_util.tree_flatten_with_path(results)[0]:
            if not isinstance(leaf, (jax.Array, bool, int, float, complex)) and not hasattr(leaf, "dtype"):
                raise InputError(
                    f"{self._name} returns {leaf!r:.40}{' at ' + jax.tree_util.keystr(keys) if keys else ''}",
                    fix="a graph returns tensors, None, and trees of them",
                    where=self._defined(),
                )
        return results

    def _advice(self, error: Exception) -> str:
        if isinstance(error, RecursionError):
            return "Python must know where a recursion ends: count it by a Python number, or write it as a while loop"
        if not self._autograph:
            return "without autograph use lax.cond, lax.while_loop, jnp.where"
        if isinstance(error, jax.errors.InconclusiveDimensionOperation):
            return "a branch of Python's cannot depend on an unknown size: give the TensorSpec a number there"
        if isinstance(error, jax.errors.TracerArrayConversionError):
            return "use jax.numpy in place of numpy"
        if isinstance(error, jax.errors.TracerIntegerConversionError):
            return "index an array, not a list; or loop_options(unroll=True) gives the loop Python numbers"
        if convert(self.python_function) is self.python_function:
            return "its source cannot be read (made by exec, or changed since its import): put it in a file"
        return "the value is known only when the graph runs: pass it as a Python value, or use jnp.where"

    def _defined(self) -> str | None:
        code = getattr(self.python_function, "__code__", None)
        return None if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def _note(self, static: Static, tensors: Sequence[Any]) -> _Trace:
        signature = signature_of(self.parameters, static, tensors)
        earlier = [item.signature for item in self._traces]
        noted = _Trace(static, tuple(Spec.of(leaf).struct() for leaf in tensors), signature)
        self._traces.append(noted)
        count = len(self._traces)
        if earlier and count >= self._warn_at and math.log2(count / self._warn_at).is_integer():
            file, _, line = (caller() or self._defined() or ":0").rpartition(":")
            warnings.warn_explicit(retraced(self._name, signature, earlier), RetraceWarning, file, int(line))
        return noted

    @property
    def trace_count(self) -> int:
        """How often the Python function was traced; failures do not count."""
        return len(self._traces)

    @property
    def concrete_functions(self) -> list[ConcreteFunction]:
        """One for each trace so far, in order; a signature that JAX had to trace twice stands once."""
        concrete = [self._of(item.static, item.structs) for item in self._traces]
        return list({id(item): item for item in concrete}.values())

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:  # Any: specs and values
        """Trace for one signature.

        Args:
            args: For a tensor a `TensorSpec`, `jax.ShapeDtypeStruct` or an array; anything else is a Python value.
                Without any, the function's `input_signature` counts.
            kwargs: Likewise.

        Raises:
            InputError: The function cannot be traced, e.g. because a branch of Python's needs an unknown size.
        """
        if not args and not kwargs and self.input_signature is not None:
            args = tuple(self.input_signature)
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=_is_spec)
        indices = [index for index, leaf in enumerate(leaves) if _is_spec(leaf) or isinstance(leaf, ARRAYS)]
        for index, struct in zip(indices, structs([leaves[index] for index in indices]), strict=True):
            leaves[index] = _Tensor(struct)
        positional, named = self.parameters.canonical(*jax.tree.unflatten(tree, leaves))
        static, tensors = split(positional, named, (*ARRAYS, _Tensor))
        return self._of(static, tuple(_struct(leaf) for leaf in tensors))

    def _of(self, static: Static, argument_structs: tuple[jax.ShapeDtypeStruct, ...]) -> ConcreteFunction:
        key = (static, tuple((item.shape, item.dtype, item.weak_type) for item in argument_structs))
        if key not in self._concrete:
            known = next(
                (item for item in self._traces if item.static == static and item.structs == argument_structs), None
            )
            self._listening = known is None
            try:
                traced = self._jit.trace(static, *argument_structs)
            except jax.errors.UnexpectedTracerError as error:
                raise leaked(self._name, error) or InputError(
                    f"{self._name} reads a tensor of a function around it, and has no graph of its own",
                    fix="pass that tensor as an argument",
                    where=self._defined(),
                ) from error
            finally:
                self._listening = True
            self._concrete[key] = ConcreteFunction(
                self._name,
                known.signature if known is not None else signature_of(self.parameters, static, argument_structs),
                traced.jaxpr,
                static[0],
                jax.tree.structure(traced.out_info),
                static,
                argument_structs,
                self.parameters,
            )
        return self._concrete[key]

    def _signed(self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: int) -> ConcreteFunction:  # Any: a call
        """The concrete function of the input signature; arguments behind it are Python values."""
        signature = self.input_signature or ()
        head, rest = args[:bound], args[bound + len(signature) :]
        key = split((*head, *rest), kwargs)[0] if head or rest or kwargs else None
        if key not in self._signatures:
            self._signatures[key] = self.get_concrete_function(*head, *signature, *rest, **kwargs)
        return self._signatures[key]

    def _general(self, static: Static, tensors: Sequence[Any]) -> ConcreteFunction | None:
        """The trace for all sizes seen, from the second size on; None where each size is traced by itself."""
        specs = tuple(Spec.of(leaf) for leaf in tensors)
        key = (static, tuple((len(spec.shape), spec.dtype) for spec in specs))
        known = self._relaxed.setdefault(key, specs)
        if known is None or isinstance(known, ConcreteFunction):
            return known
        if known == specs:
            return None
        wider = generalised(known, specs)
        self._relaxed[key] = None
        if wider is None:
            return None
        try:
            self._relaxed[key] = general = self._of(static, tuple(structs(wider)))
        except Exception:  # a size must be known for this function: each is traced by itself
            return None
        return general


class BoundFunction:
    """A `Function` as the method of an instance."""

    def __init__(self, function: Function, instance: object) -> None:
        self._function = function
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: as in Function
        """Run the method's graph for these arguments, tracing it where none fits them yet."""
        return self._function.call((self._instance, *args), kwargs, bound=1)

    def __repr__(self) -> str:
        return f"{self._function!r} of {self._instance!r}"

    def eager(self, *args: Any, **kwargs: Any) -> Any:  # Any: as in Function
        """Run the method itself, line by line."""
        return self._function.eager(self._instance, *args, **kwargs)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:  # Any: as in Function
        """Trace the method for one signature, without the instance."""
        if not args and not kwargs:
            args = tuple(self._function.input_signature or ())
        return self._function.get_concrete_function(self._instance, *args, **kwargs)

    @property
    def concrete_functions(self) -> list[ConcreteFunction]:
        """The concrete functions of all instances."""
        return self._function.concrete_functions

    @property
    def trace_count(self) -> int:
        """How often the method was traced, for all instances."""
        return self._function.trace_count


class _Tensor:
    """A spec among the arguments of a call, as one leaf."""

    def __init__(self, struct: jax.ShapeDtypeStruct) -> None:
        self.struct = struct


def _struct(leaf: Any) -> jax.ShapeDtypeStruct:  # Any: a spec's mark or an array among the defaults
    return leaf.struct if isinstance(leaf, _Tensor) else Spec.of(leaf).struct()


def _is_spec(leaf: object) -> bool:
    return isinstance(leaf, (TensorSpec, jax.ShapeDtypeStruct))


@overload
def function(fn: Fn, /) -> Function: ...
@overload
def function(
    *,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    reduce_retracing: bool = False,
    max_steps: int | None = None,
    checks: bool = False,
    retrace_warning: int = 5,
) -> Callable[[Fn], Function]: ...
def function(fn: Fn | None = None, /, **options: Any) -> Function | Callable[[Fn], Function]:  # Any: as overloaded
    """Make a function of JAX arrays a graph, traced once for each signature and compiled by XLA.

    A signature is the structure of the arguments, shape and dtype of those that are arrays, and the value of those
    that are not: numbers, text and None are constants of the graph, objects count by identity (or by their own
    `__eq__`). Python control flow on tensors becomes that of the graph; see docs/functions.md.

    Args:
        fn: The function; methods work too.
        input_signature: A `TensorSpec` for each tensor, in order: one trace for all calls, and for every batch size
            where a dimension is None. Arguments behind them are Python values.
        autograph: Convert `if`, `while`, `for` and the like.
        reduce_retracing: When a size changes for the first time, trace once more for all sizes.
        max_steps: A bound on the steps of every loop that a tensor ends; gives them gradients.
        checks: Make `assert` on tensors checks of the graph, which raise InputError with the user's line. They cost a
            transfer at each call, and a program for each size, whatever the signature. A concrete function has none.
        retrace_warning: Warn at this many traces, and at each doubling.
        **options: These, by name.

    Returns:
        A `Function`: called like the one it was made of; `eager`, `concrete_functions`, `get_concrete_function`.
    """
    if fn is None:
        return lambda user_function: Function(user_function, **options)
    return Function(fn, **options)
