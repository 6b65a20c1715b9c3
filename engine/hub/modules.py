"""A module of the hub: a saved program as a function of params and inputs, for JAX code and for preprocessing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError
from ...user_code import explain, raised_at
from .._caller import caller
from ..bundles.bundle import Bundle
from ..bundles.manifest import Signature, export_facts
from ..graphs.graph import Graph, Output
from ..graphs.nodes import ARRAY_DTYPES, BATCH, DeviceStage, HostNode, Tensor
from ..lowering.lower import PLATFORMS, export_program
from ..lowering.programs import Payload
from ..tracing.primitives import in_32_bits, shaped
from .calling import Call, calls_of, has_gradient
from .columns import on_columns, zeros_for

CALL: Final = "call"
"""The signature of what `module` saves."""
OUTPUT: Final = "output"
"""The output's name of a function that gives one array."""
_PARAMS: Final = "params/"
_PROGRAM: Final = "module-0"

Inputs = Any  # an array, or arrays by name: what the module's signature says
Params = Any  # a nested dict of arrays


@dataclass(frozen=True, eq=False)  # jit and custom rules hash what they call
class HubModule:
    """A saved program, to be called: `module(params, x)`, or `module(x)` with the params that it came with.

    Inputs are an array or columns by name, or, where the signature takes one, that itself; the first dimension of
    arrays is the batch. It gives what the saved function gave: an array, or a dict of arrays by name.

    On arrays it works wherever JAX does (jit, grad, scan; not under vmap: the batch is its own). Where `trainable` is
    False, gradients flow through to the inputs and none to the params. What takes columns (text, numbers that may be
    missing) is called in `preprocess(columns)`: its host ops and programs become part of that graph.

    Attributes:
        bundle: What was saved.
        signature: Which of the bundle's signatures this calls.
        trainable: Whether gradients reach the params.
        source: Where it came from, for people.
    """

    bundle: Bundle
    signature: str
    trainable: bool = False
    source: str = "this module"

    def __post_init__(self) -> None:
        self.bundle.graph.signature(self.signature)
        if self.trainable and self.takes_columns:
            raise InputError(
                f"{self.source} takes columns, so no gradient gets through it to its params",
                fix="load it frozen (trainable=False), or publish its model by hub.module(fn, params, inputs)",
            )
        if self.trainable and not has_gradient(self.bundle, self._stages):
            raise InputError(
                f"{self.source} was saved without its gradient, so it cannot be trained",
                fix="load it frozen (trainable=False), or publish it by hub.module(fn, params, inputs)",
            )

    @property
    def spec(self) -> Signature:
        """Its inputs and outputs by name, with dtypes and the shape of one row."""
        return self.bundle.signatures[self.signature]

    @property
    def takes_columns(self) -> bool:
        """Whether it has host ops or takes columns, and so belongs in `preprocess`."""
        columns = any(tensor.column for tensor in self._graph.inputs.values())
        return columns or any(isinstance(node, HostNode) for node in self._graph.nodes)

    @cached_property
    def params(self) -> Params:
        """The params it came with: a nested dict of JAX arrays, by the names they had in the saved tree."""
        with jax.ensure_compile_time_eval():  # or what `Model.init` asks for first would be kept as tracers
            return _nested({name: jnp.asarray(array) for name, array in self._arrays().items()})

    def with_params(self, params: Params) -> HubModule:
        """The same program with other params, to be used or published.

        Raises:
            InputError: One is missing, unexpected, or of another shape or dtype.
        """
        weights = dict(self.bundle.payload.weights)
        checked = self._checked(params)
        weights.update((name, np.asarray(array)) for name, array in checked.items())
        return replace(self, bundle=replace(self.bundle, payload=replace(self.bundle.payload, weights=weights)))

    def apply(self, params: Params, inputs: Inputs) -> Any:
        """What the program gives for these params and inputs; `module(params, inputs)` is the same.

        Raises:
            InputError: An input or a param is missing, or of another shape or dtype; it is differentiated where it
                has no gradient, or twice.
        """
        weights = self._checked(params)
        if not self.trainable:
            weights = {name: jax.lax.stop_gradient(array) for name, array in weights.items()}
        return self._run(weights, inputs)

    def __call__(self, *arguments: Any) -> Any:
        """`module(params, inputs)`, or `module(inputs)` with its own params as constants; raises as `apply`."""
        if len(arguments) == 2:
            return self.apply(*arguments)
        if len(arguments) != 1:
            raise InputError(
                f"{self.source} was given {len(arguments)} arguments",
                fix="module(inputs), or module(params, inputs)",
                where=caller(),
            )
        return self._run(self._arrays(), arguments[0])

    def __repr__(self) -> str:
        numbers = sum(array.size for array in self._arrays().values())
        kind = "trainable" if self.trainable else "frozen"
        return f"HubModule({self.source}: {self.signature}{self._shown}, {numbers:,} params, {kind})"

    # --- how ---

    @cached_property
    def _graph(self) -> Graph:
        return self.bundle.graph.signature(self.signature)

    @cached_property
    def _stages(self) -> dict[str, DeviceStage]:
        return {node.program: node for node in self._graph.nodes if isinstance(node, DeviceStage)}

    @cached_property
    def _calls(self) -> dict[str, Call]:
        return calls_of(self.bundle, self._stages, self.source)

    @property
    def _shown(self) -> str:
        """Its signature as errors show it: `(x: float32[b,64]) -> output: float32[b,8]`."""

        def spelled(name: str, dtype: str, shape: Sequence[object]) -> str:
            return f"{name}: {dtype}[{','.join(map(str, (BATCH, *shape)))}]"

        taken = [spelled(name, tensor.dtype, tensor.shape[1:]) for name, tensor in self._graph.inputs.items()]
        outputs = [spelled(name, spec.dtype, spec.shape) for name, spec in self.spec.outputs.items()]
        return f"({', '.join(taken)}) -> {', '.join(outputs)}"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        used = {name for stage in self._stages.values() for name in stage.weights}
        return {name: self.bundle.payload.weights[name] for name in sorted(used)}

    def _checked(self, params: Params) -> dict[str, Any]:  # Any: JAX arrays
        """The params by the weights' names. Raises InputError, listing what does not fit."""
        weight_names = {_path(name): name for name in self._arrays()}
        leaves = dict(flattened(params))
        problems = [f"{path} is missing" for path in weight_names if path not in leaves]
        problems += [f"{path} is unexpected" for path in leaves if path not in weight_names]
        for path in weight_names.keys() & leaves.keys():
            wanted, array = self.bundle.payload.weights[weight_names[path]], leaves[path]
            if jnp.shape(array) != wanted.shape or str(getattr(array, "dtype", "")) != str(wanted.dtype):
                actual = f"{getattr(array, 'dtype', type(array).__name__)}{list(jnp.shape(array))}"
                problems.append(f"{path} is {actual}, not {wanted.dtype}{list(wanted.shape)}")
        if problems:
            raise InputError(
                f"these are not the params of {self.source}: {'; '.join(sorted(problems))[:600]}",
                fix="start from module.params, and keep names and shapes",
                where=caller(),
            )
        return {name: leaves[path] for path, name in weight_names.items()}

    def _run(self, weights: Mapping[str, Any], inputs: Inputs) -> Any:
        named = self._named(inputs)
        if self.takes_columns:
            outputs = on_columns(self.bundle, self._graph, self.signature, self._calls, named, self.source)
        else:
            outputs = self._on_arrays(weights, {name: self._array(name, value) for name, value in named.items()})
        return outputs[OUTPUT] if list(outputs) == [OUTPUT] else outputs

    def _named(self, inputs: Inputs) -> dict[str, Any]:
        wanted = self._graph.inputs
        if not isinstance(inputs, Mapping):
            if len(wanted) != 1:
                raise InputError(
                    f"{self.source} takes {len(wanted)} inputs: {self._shown}", fix="give them by name", where=caller()
                )
            return {next(iter(wanted)): inputs}
        missing = [name for name in wanted if name not in inputs]
        if missing:
            absent = f"input {missing[0]!r} is" if len(missing) == 1 else f"inputs {', '.join(map(repr, missing))} are"
            raise InputError(
                f"{absent} missing: {self.source} is {self._shown}",
                fix=f"give it (given: {', '.join(map(str, inputs))[:200]})",
                where=caller(),
            )
        return {name: inputs[name] for name in wanted}

    def _array(self, name: str, value: Any) -> Any:  # Any: JAX arrays
        tensor = self._graph.inputs[name]
        array = jnp.asarray(value)
        fits = array.ndim == len(tensor.shape) and tuple(array.shape[1:]) == tuple(tensor.shape[1:])
        fits = fits and array.shape[0] != 0  # programs are saved for one row and more
        if str(array.dtype) != tensor.dtype or not fits:
            raise InputError(
                f"input {name!r} is {array.dtype}[{','.join(map(str, array.shape))}]: {self.source} is {self._shown}",
                fix="cast or reshape it; b is the batch, at least 1",
                where=caller(),
            )
        return array

    def _on_arrays(self, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        sizes = {name: array.shape[0] for name, array in inputs.items()}
        first = next(iter(sizes.values()))
        if any(size != first for size in sizes.values()):  # symbolic sizes are equal where JAX can prove it
            raise InputError(
                f"the inputs of {self.source} differ in their batch: {sizes}", fix="give as many rows", where=caller()
            )
        env = {self._graph.inputs[name].id: array for name, array in inputs.items()}
        for stage in self._stages.values():
            arguments = [
                zeros_for(*slot, first) if tensor is None else env[tensor]
                for tensor, slot in zip(stage.inputs, stage.slots, strict=True)
            ]
            results = self._calls[stage.program](*arguments, *(jnp.asarray(weights[name]) for name in stage.weights))
            env.update(zip((tensor.id for tensor in stage.outputs), results, strict=True))
        return {name: env[out.tensor] for name, out in self._graph.signatures[self.signature].items()}


@in_32_bits
def module(
    fn: Callable[[Params, Inputs], Any],
    params: Params,
    inputs: Inputs,
    *,
    platforms: Sequence[str] = PLATFORMS,
) -> HubModule:
    """Save a function with its params, and its first gradient, as a module to use or to publish.

    Args:
        fn: `fn(params, inputs)`: gives an array, or a dict of arrays by name. Traced once, with a symbolic batch.
        params: Any pytree of arrays; they keep their path names.
        inputs: Example inputs: an array (named "inputs") or arrays by name, or `jax.ShapeDtypeStruct`s. What counts
            is dtype and shape; the first dimension is the batch.
        platforms: What to lower it for.

    Returns:
        The module, trainable.

    Raises:
        InputError: The function fails, gives something else, or depends on the batch's size; a param is not an array.
    """
    tensors = {name: _input(name, value) for name, value in _by_name(inputs).items()}
    arrays = {_PARAMS + path: _array_of(path, leaf) for path, leaf in flattened(params)}
    tree: Any = jax.tree_util.tree_structure(params)  # Any: JAX types none
    single = not isinstance(inputs, Mapping)
    names: list[str] = []

    def run(*arrays_and_params: Any) -> list[Any]:
        taken = dict(zip(tensors, arrays_and_params, strict=False))
        outputs = fn(tree.unflatten(arrays_and_params[len(tensors) :]), arrays_and_params[0] if single else taken)
        outputs = outputs if isinstance(outputs, Mapping) else {OUTPUT: outputs}
        for name, value in outputs.items():
            if not isinstance(name, str) or not hasattr(value, "dtype"):
                raise InputError(
                    f"the function gave {name!r}: {value!r:.60}",
                    fix="return an array, or a dict of arrays by name",
                )
        names[:] = list(outputs)  # what is traced returns arrays alone: their names are known once it has run
        return list(outputs.values())

    (batch,) = jax.export.symbolic_shape(BATCH)
    shapes = [shaped((batch, *tensor.shape[1:]), tensor.dtype) for tensor in tensors.values()]
    shapes += [shaped(array.shape, array.dtype) for array in arrays.values()]
    try:
        avals = jax.eval_shape(run, *shapes)
        outputs = tuple(_output(name, aval) for name, aval in zip(names, avals, strict=True))
        program = export_program(run, shapes, platforms, vjp_order=1)
    except DrivetrainError:
        raise
    except Exception as error:  # the user's function may raise anything
        said, advice = explain(error)
        raise InputError(
            f"the function cannot be saved: {said:.200}",
            fix=advice or "it takes (params, inputs) and must not depend on how many rows there are",
            where=raised_at(error.__traceback__),
        ) from error
    ids = tuple(tensor.id for tensor in tensors.values())
    slots = tuple((tensor.dtype, tensor.shape) for tensor in tensors.values())
    needs = tuple(tuple(range(len(ids))) for _ in outputs)
    stage = DeviceStage(_PROGRAM, ids, slots, tuple(arrays), outputs, needs)
    named = {name: Output(tensor.id) for name, tensor in zip(names, outputs, strict=True)}
    graph = Graph(tensors, (stage,), {CALL: named})
    payload = Payload({_PROGRAM: program}, dict(sorted(arrays.items())), {})
    return HubModule(Bundle(graph, payload, export_facts(tuple(platforms))), CALL, trainable=True)


def flattened(params: Params) -> list[tuple[str, Any]]:  # Any: arrays
    """The leaves of a pytree with their paths, "dense/kernel".

    Raises:
        InputError: Two leaves have the same path, or the path of another goes through one.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    named_leaves = [(jax.tree_util.keystr(path, simple=True, separator="/") or "value", leaf) for path, leaf in leaves]
    paths = {path for path, _ in named_leaves}
    if len(paths) != len(named_leaves) or any(_parents(path) & paths for path in paths):
        raise InputError("two of the params have the same path", fix="name them apart")
    return named_leaves


def _parents(path: str) -> set[str]:
    parts = path.split("/")
    return {"/".join(parts[:depth]) for depth in range(1, len(parts))}


def _path(weight: str) -> str:
    return weight.removeprefix(_PARAMS)


def _nested(arrays: Mapping[str, Any]) -> Params:
    nested: dict[str, Any] = {}
    for name, array in arrays.items():
        *folders, last = _path(name).split("/")
        inner = nested
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[last] = array
    return nested


def _by_name(inputs: Inputs) -> Mapping[str, Any]:
    named = inputs if isinstance(inputs, Mapping) else {"inputs": inputs}
    if not named or not all(isinstance(name, str) and name for name in named):
        raise InputError(f"the inputs are named {list(named)!r:.80}", fix="name each with text")
    return named


def _input(name: str, value: Any) -> Tensor:
    shape = getattr(value, "shape", ())
    dtype = str(jnp.asarray(value).dtype) if isinstance(value, np.ndarray) else str(getattr(value, "dtype", ""))
    if not shape or dtype not in ARRAY_DTYPES or not all(isinstance(dim, int) for dim in shape[1:]):
        raise InputError(
            f"input {name!r} is {dtype or type(value).__name__}{list(shape)}",
            fix=f"give an array with the batch first, of {', '.join(ARRAY_DTYPES[:3])}, …",
        )
    return Tensor(f"input/{name}", dtype, (BATCH, *shape[1:]))


def _output(name: str, aval: Any) -> Tensor:  # Any: a JAX shape
    dims = [dim if isinstance(dim, int) else str(dim) for dim in aval.shape]
    if any(isinstance(dim, str) for dim in dims[1:]) or dims[:1] != [BATCH] or str(aval.dtype) not in ARRAY_DTYPES:
        raise InputError(f"output {name!r} is {aval.dtype}{dims}", fix="give one value or vector per row")
    return Tensor(f"output/{name}", str(aval.dtype), tuple(dims))


def _array_of(path: str, leaf: Any) -> NDArray[Any]:
    array = np.asarray(leaf) if hasattr(leaf, "dtype") else np.asarray(jnp.asarray(leaf))
    if array.dtype in (np.float64, np.int64):
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    if str(array.dtype) not in ARRAY_DTYPES:
        raise InputError(f"param {path} is {array.dtype}, no array of numbers", fix="keep only arrays in params")
    return array
