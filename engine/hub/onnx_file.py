"""ONNX files as JAX functions: the graph is walked node by node while JAX traces, its weights are params."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError, missing_extra
from ..graphs.graph import FieldSpec
from .onnx_ml_ops import ML_OPS
from .onnx_ops import MOST_BYTES, OPS, Value, too_large

_LEAST: Final = 13
_MOST: Final = 25
"""The versions of ONNX's operators that are read: in all of them these ops mean the same, or attributes say."""

_SINCE_7: Final = frozenset({"Add", "Cast", "Div", "Identity", "Mul", "Sub"})
"""Operators that mean the same since version 7: exporters of trees write them around these in older versions."""
_STANDARD: Final = ("", "ai.onnx")
_ML: Final = "ai.onnx.ml"
_NUMBERS: Final = "export the model with numbers as inputs"
_KNOWN: Final = {**OPS, **{f"{_ML}.{name}": op for name, op in ML_OPS.items()}}


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model in JAX.

    Attributes:
        apply: `apply(params, inputs)`, as `hub.module` and `Model` have it: inputs by name, or the one array; gives
            the one output, or a dict of them. Traced; shapes may be symbolic where the graph's ops allow it.
        params: Its float weights by name (with "/" for "."), as NumPy arrays. Integers (shapes, indices) are constants.
        inputs: By name, with dtype and shape after the first dimension; a 0 is a dimension that the file leaves open.
        outputs: The names.
    """

    apply: Callable[[Any, Any], Any]  # Any: arrays
    params: dict[str, NDArray[Any]] = field(repr=False)
    inputs: Mapping[str, FieldSpec]
    outputs: tuple[str, ...]


def from_onnx(path: str | Path) -> OnnxModel:
    """Read an ONNX model for inference, or to be trained further: what it computes is differentiable JAX.

    Args:
        path: The file. Weights beside it (external data) are read from its own folder alone.

    Raises:
        InputError: It is not an ONNX model, of operators older than 13 (but for a few that have not changed) or newer
            than 25, or has an op that is not known: the op and those known are named. An input is no tensor of numbers.
        DrivetrainError: `onnx` is not installed.
    """
    try:
        import onnx
        from onnx import numpy_helper
    except ImportError as error:
        raise missing_extra("onnx", "onnx") from error
    try:
        model: Any = onnx.load(str(path))  # Any: protobuf
        onnx.checker.check_model(model)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist", fix="name an ONNX file") from error
    except Exception as error:  # protobuf's and the checker's, of many kinds
        raise _unusable(path, error) from error
    opset = max((imported.version for imported in model.opset_import if imported.domain in _STANDARD), default=0)
    dated = {node.op_type for node in model.graph.node if node.domain in _STANDARD} - _SINCE_7
    if not (_LEAST if dated else 0) <= opset <= _MOST:
        raise InputError(
            f"{path} uses operators of version {opset}, this release reads {_LEAST} to {_MOST}",
            fix=f"convert it: onnx.version_converter.convert_version(model, {_MOST - 4})",
        )
    graph = model.graph
    unknown = sorted({_full_name(node) for node in graph.node} - _KNOWN.keys())
    if unknown or graph.sparse_initializer or model.functions:
        raise InputError(
            f"{path} has {', '.join(unknown) or 'sparse weights or functions'}, which this release does not know",
            fix=f"export it without them; known are {', '.join(sorted(_KNOWN))}",
        )
    try:
        held = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        nodes = [_Node.of(node, opset, numpy_helper.to_array) for node in graph.node]
    except Exception as error:  # types and sizes that the checker lets pass
        raise _unusable(path, error) from error
    params, constants = {}, {}
    for name, array in held.items():
        if jnp.issubdtype(array.dtype, jnp.floating) and array.ndim:
            params[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        else:
            constants[name] = array
    inputs = {value.name: _spec(value, path) for value in graph.input if value.name not in held}
    outputs = tuple(value.name for value in graph.output)
    keys = {name: name.replace(".", "/") for name in params}
    if len(set(keys.values())) != len(keys):
        keys = {name: name for name in params}

    def apply(params: Any, values: Any) -> Any:
        env: dict[str, Value] = {**constants, **{name: jnp.asarray(params[key]) for name, key in keys.items()}}
        env.update(_inputs(values, inputs, str(path)))
        for node in nodes:
            node.run(env)
        results = {name: jnp.asarray(env[name]) for name in outputs}
        return results[outputs[0]] if len(outputs) == 1 else results

    return OnnxModel(apply, {keys[name]: array for name, array in params.items()}, inputs, outputs)


def _unusable(path: str | Path, error: Exception) -> InputError:
    said = (str(error) or type(error).__name__).splitlines()[0]
    return InputError(f"{path} is not an ONNX model that can be used: {said:.160}", fix="export it again")


def _full_name(node: Any) -> str:  # Any: protobuf
    """The op's name, with its domain where that is not ONNX's own."""
    return node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"


@dataclass(frozen=True)
class _Node:
    """One node: an op with its attributes as Python values."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @classmethod
    def of(cls, node: Any, opset: int, to_array: Callable[[Any], NDArray[Any]]) -> _Node:  # Any: protobuf
        from onnx import helper

        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        for key, value in attributes.items():
            if isinstance(value, bytes):
                attributes[key] = value.decode()
            elif hasattr(value, "raw_data"):
                attributes[key] = to_array(value)
        attributes["opset"] = opset
        attributes["outputs"] = len(node.output)
        return cls(_full_name(node), node.name or node.op_type, tuple(node.input), tuple(node.output), attributes)

    def run(self, env: dict[str, Value]) -> None:
        arguments = [env[name] if name else None for name in self.inputs]
        try:
            results = _KNOWN[self.op](self.attributes, *arguments)
            results = results if isinstance(results, tuple) else (results,)
            if self.op != "Constant" and any(
                isinstance(each, np.ndarray) and each.nbytes > MOST_BYTES for each in results
            ):
                raise too_large()
        except DrivetrainError as error:
            raise InputError(f"ONNX node {self.name!r} ({self.op}): {error.message}", fix=error.fix) from error
        except Exception as error:  # NumPy's and JAX's, of many kinds; where a file asks for it, a MemoryError too
            shapes = [list(np.shape(value)) for value in arguments if value is not None]
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"ONNX node {self.name!r} ({self.op}) on {shapes} fails: {said:.200}",
                fix="check the shapes of the inputs",
            ) from error
        if any(self.outputs[len(results) :]):
            raise InputError(
                f"ONNX node {self.name!r} ({self.op}) is to give {len(self.outputs)} results, this release knows one",
                fix="export the model for inference",
            )
        env.update((name, value) for name, value in zip(self.outputs, results, strict=False) if name)


def _inputs(values: Any, wanted: Mapping[str, FieldSpec], where: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        if len(wanted) != 1:
            raise InputError(f"{where} takes {', '.join(wanted)}", fix="give the inputs by name")
        values = {next(iter(wanted)): values}
    missing = [name for name in wanted if name not in values]
    if missing:
        raise InputError(f"input {missing[0]!r} of {where} is missing", fix=f"give {', '.join(wanted)}")
    return {name: jnp.asarray(values[name]) for name in wanted}


def _spec(value: Any, path: str | Path) -> FieldSpec:  # Any: protobuf
    from onnx import helper

    tensor = value.type.tensor_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except KeyError as error:  # of a sequence or a map it is 0, too
        raise InputError(
            f"input {value.name!r} of {path} has a type that is not a tensor's: {tensor.elem_type}", fix=_NUMBERS
        ) from error
    if dtype.kind == "O":
        raise InputError(f"input {value.name!r} of {path} is text", fix=_NUMBERS)
    dims = tuple(int(dim.dim_value) for dim in tensor.shape.dim)
    return FieldSpec(str(dtype), dims[1:])
