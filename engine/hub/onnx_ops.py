"""The operators of ONNX that a model's inference is made of, in JAX; what is known while tracing stays in NumPy.

Each takes a node's attributes ("opset" and the number of "outputs" among them), then its inputs, None for one left out.
Definitions: https://onnx.ai/onnx/operators/. Values made of shapes and constants alone are NumPy arrays (of objects,
where a dimension is symbolic), so that shapes computed in the graph are known to JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError

Value = Any  # a NumPy array (known while tracing) or a JAX array
Attributes = Mapping[str, Any]  # Any: numbers, texts, lists and arrays, by ONNX's names
Operator = Callable[..., Any]
_Pairs = list[tuple[int, int]]

MOST_BYTES: Final = 256 << 20
"""Of a constant that nodes make, larger than any mask that exporters write: a few bytes of a file could fill memory."""
_END: Final = 2**31 - 1  # what exporters write for "to the end", or more


def _known(*values: Value) -> bool:
    return all(value is None or isinstance(value, (np.ndarray, np.generic)) for value in values)


def _numpy_of(*values: Value) -> Any:  # Any: the module numpy, or jax.numpy
    return np if _known(*values) else jnp


def _host(value: Value, what: str) -> list[Any]:
    """A value that must be known while tracing: shapes, axes, indices."""
    if not _known(value):
        raise InputError(f"its {what} depend on the data", fix="export the model with fixed shapes")
    return [each if not isinstance(each, np.generic) else each.item() for each in np.ravel(value)]


def _elementwise(name: str) -> Operator:
    return lambda attributes, *values: reduce(getattr(_numpy_of(*values), name), values)


def _unary(fn: Callable[[Any], Any]) -> Operator:
    return lambda attributes, x: fn(jnp.asarray(x))


def _div(attributes: Attributes, a: Value, b: Value) -> Value:
    if _known(a, b):
        whole = np.asarray(a).dtype.kind in "iuO" and np.asarray(b).dtype.kind in "iuO"
        if not whole:
            return np.divide(a, b)
        sizes = np.asarray(a).dtype.kind == "O" or np.asarray(b).dtype.kind == "O"  # symbolic, hence not negative
        return np.floor_divide(a, b) if sizes else np.floor_divide(np.subtract(a, np.fmod(a, b)), b)  # towards zero
    a, b = jnp.asarray(a), jnp.asarray(b)
    if not jnp.issubdtype(a.dtype, jnp.integer):
        return a / b
    return jax.lax.div(*jnp.broadcast_arrays(a, b.astype(a.dtype)))  # towards zero, unlike Python's


def _clip(attributes: Attributes, x: Value, low: Value = None, high: Value = None) -> Value:
    return jnp.clip(jnp.asarray(x), low, high)


def _cast(attributes: Attributes, x: Value) -> Value:
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(attributes["to"])
    if _known(x):
        return x if x.dtype == object and dtype.kind == "i" else np.asarray(x).astype(dtype)
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
    return jnp.asarray(x).astype(narrow.get(str(dtype), dtype))


def _gemm(attributes: Attributes, a: Value, b: Value, c: Value = None) -> Value:
    left = jnp.asarray(a).T if attributes.get("transA") else jnp.asarray(a)
    right = jnp.asarray(b).T if attributes.get("transB") else jnp.asarray(b)
    product = attributes.get("alpha", 1.0) * (left @ right)
    return product if c is None else product + attributes.get("beta", 1.0) * jnp.asarray(c)


def _batch_normalization(attributes: Attributes, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    if attributes.get("training_mode"):
        raise InputError("it is in training mode", fix="export the model for inference")
    wide = [jnp.reshape(value, (-1, *[1] * (x.ndim - 2))) for value in (scale, bias, mean, var)]
    return (x - wide[2]) * jax.lax.rsqrt(wide[3] + attributes.get("epsilon", 1e-5)) * wide[0] + wide[1]


def _layer_normalization(attributes: Attributes, x: Value, scale: Value, bias: Value = None) -> Value:
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    centred = x - jnp.mean(x, axes, keepdims=True)
    spread = jnp.mean(centred * centred, axes, keepdims=True)
    normalized = centred * jax.lax.rsqrt(spread + attributes.get("epsilon", 1e-5)) * scale
    return normalized if bias is None else normalized + bias


def _global(fn: Callable[..., Any]) -> Operator:
    return lambda attributes, x: fn(x, axis=tuple(range(2, x.ndim)), keepdims=True)


def _reduced(name: str) -> Operator:
    def run(attributes: Attributes, x: Value, axes: Value = None) -> Value:
        chosen = attributes.get("axes") if axes is None else _host(axes, "axes")
        if not chosen and attributes.get("noop_with_empty_axes"):
            return x
        along = tuple(int(axis) for axis in chosen) if chosen else None
        return getattr(_numpy_of(x), name)(x, axis=along, keepdims=bool(attributes.get("keepdims", 1)))

    return run


def _arg_max(attributes: Attributes, x: Value) -> Value:
    if attributes.get("select_last_index"):
        raise InputError("it selects the last of equals", fix="export it with select_last_index=0")
    axis = attributes.get("axis", 0)
    index = jnp.argmax(x, axis).astype(jnp.int32)
    return jnp.expand_dims(index, axis) if attributes.get("keepdims", 1) else index


def _softmax(fn: Callable[..., Any]) -> Operator:
    return lambda attributes, x: fn(jnp.asarray(x), axis=attributes.get("axis", -1))


# --- shapes ---


def _shape(attributes: Attributes, x: Value) -> Value:
    dims = list(np.shape(x))[attributes.get("start", 0) : attributes.get("end")]
    symbolic = any(not isinstance(dim, int) for dim in dims)
    return np.array(dims, dtype=object if symbolic else np.int64)


def _reshape(attributes: Attributes, x: Value, shape: Value) -> Value:
    wanted = _host(shape, "shapes")
    if not attributes.get("allowzero"):
        wanted = [
            x.shape[position] if isinstance(dim, int) and dim == 0 else dim for position, dim in enumerate(wanted)
        ]
    return _numpy_of(x).reshape(x, wanted)


def _flatten(attributes: Attributes, x: Value) -> Value:
    axis = attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    if axis == 1:
        return jnp.reshape(x, (x.shape[0], prod(x.shape[1:])))
    return jnp.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _transpose(attributes: Attributes, x: Value) -> Value:
    return _numpy_of(x).transpose(x, attributes.get("perm"))


def _squeeze(attributes: Attributes, x: Value, axes: Value = None) -> Value:
    return _numpy_of(x).squeeze(x, None if axes is None else tuple(_host(axes, "axes")))


def _unsqueeze(attributes: Attributes, x: Value, axes: Value) -> Value:
    return _numpy_of(x).expand_dims(x, tuple(_host(axes, "axes")))


def _concat(attributes: Attributes, *values: Value) -> Value:
    return _numpy_of(*values).concatenate(values, axis=attributes["axis"])


def _split(attributes: Attributes, x: Value, sizes: Value = None) -> tuple[Value, ...]:
    axis, parts = attributes.get("axis", 0), attributes["outputs"]
    if sizes is None:
        each = -(-x.shape[axis] // parts)
        bounds = [each * number for number in range(1, parts)]
    else:
        bounds = [int(bound) for bound in np.cumsum(_host(sizes, "sizes"))[:-1]]
    return tuple(_numpy_of(x).split(x, bounds, axis))


def _slice(
    attributes: Attributes, x: Value, starts: Value, ends: Value, axes: Value = None, steps: Value = None
) -> Value:
    first, last = _host(starts, "starts"), _host(ends, "ends")
    along = list(range(len(first))) if axes is None else _host(axes, "axes")
    by = [1] * len(first) if steps is None else _host(steps, "steps")
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(first, last, along, by, strict=True):
        whole = isinstance(end, int) and (end >= _END if step > 0 else end <= -_END)
        begin = None if isinstance(start, int) and step < 0 and start >= _END else start
        index[axis] = slice(begin, None if whole else end, step)
    return x[tuple(index)]


def _gather(attributes: Attributes, x: Value, indices: Value) -> Value:
    axis = attributes.get("axis", 0)
    if _known(x, indices):
        return np.take(x, indices, axis=axis)
    where = jnp.asarray(indices)
    return jnp.take(jnp.asarray(x), jnp.where(where < 0, where + x.shape[axis], where), axis=axis, mode="clip")


def _expand(attributes: Attributes, x: Value, shape: Value) -> Value:
    wanted = _host(shape, "shapes")
    ours = [1] * (len(wanted) - x.ndim) + list(x.shape)
    theirs = [1] * (len(ours) - len(wanted)) + wanted
    dims = [b if isinstance(a, int) and a == 1 else a for a, b in zip(ours, theirs, strict=True)]
    return _numpy_of(x).broadcast_to(x, dims)


def _pad(attributes: Attributes, x: Value, pads: Value, value: Value = None, axes: Value = None) -> Value:
    widths, mode = _host(pads, "pads"), attributes.get("mode", "constant")
    along = list(range(x.ndim)) if axes is None else _host(axes, "axes")
    pairs = [(0, 0)] * x.ndim
    for position, axis in enumerate(along):
        pairs[axis] = (widths[position], widths[position + len(along)])
    if mode not in ("constant", "reflect", "edge") or min(widths) < 0:
        raise InputError(f"it pads by {mode!r} {widths}", fix="use constant, reflect or edge, and no negative widths")
    if mode == "constant":
        return jnp.pad(x, pairs, constant_values=0 if value is None else value)
    return jnp.pad(x, pairs, mode=mode)


def _constant(attributes: Attributes) -> Value:
    for key in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if key in attributes:
            dtype = np.float32 if "float" in key else np.int64 if "int" in key else None
            return np.asarray(attributes[key], dtype)
    raise InputError("it is a constant of text or of sparse values", fix="export the model without")


def _constant_of_shape(attributes: Attributes, shape: Value) -> Value:
    value = attributes.get("value", np.zeros(1, np.float32))
    wanted = _host(shape, "shapes")
    known = all(isinstance(dim, int) for dim in wanted)
    if known and prod(wanted) * value.itemsize > MOST_BYTES:
        raise too_large()
    return (np if known else jnp).full(wanted, value.reshape(()))


def too_large() -> InputError:
    """Of a node whose constant is larger than `MOST_BYTES`."""
    return InputError(f"it makes more than {MOST_BYTES >> 20} MiB of a constant", fix="export smaller shapes")


def _gelu(attributes: Attributes, x: Value) -> Value:
    return jax.nn.gelu(x, approximate=attributes.get("approximate", "none") == "tanh")


def _selu(attributes: Attributes, x: Value) -> Value:
    alpha, gamma = attributes.get("alpha", 1.6732632), attributes.get("gamma", 1.050701)
    return gamma * jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


def _elu(attributes: Attributes, x: Value) -> Value:
    return jnp.where(x > 0, x, attributes.get("alpha", 1.0) * jnp.expm1(jnp.minimum(x, 0)))


# --- a window that slides over an image, in any number of dimensions: values are [batch, channels, *space] ---


def _conv(attributes: Attributes, x: Value, kernel: Value, bias: Value = None) -> Value:
    """Conv, grouped and dilated as the attributes say."""
    x, kernel = jnp.asarray(x), jnp.asarray(kernel)
    window = kernel.shape[2:]
    strides, dilations, pads = _window(attributes, x, window)
    convolved = jax.lax.conv_general_dilated(
        x, kernel, strides, pads, rhs_dilation=dilations, feature_group_count=attributes.get("group", 1)
    )
    return convolved if bias is None else convolved + jnp.reshape(bias, (-1, *[1] * len(window)))


def _max_pool(attributes: Attributes, x: Value) -> Value:
    """MaxPool's first output; its second, the indices of the maxima, is not computed."""
    x = jnp.asarray(x)
    window = attributes["kernel_shape"]
    strides, dilations, pads = _window(attributes, x, window)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else np.iinfo(x.dtype).min
    return _reduced_windows(x, x.dtype.type(least), jax.lax.max, window, strides, dilations, pads)


def _average_pool(attributes: Attributes, x: Value) -> Value:
    """AveragePool; padding counts only where `count_include_pad` says so."""
    x = jnp.asarray(x)
    window = attributes["kernel_shape"]
    strides, dilations, pads = _window(attributes, x, window)
    zero = x.dtype.type(0)
    total = _reduced_windows(x, zero, jax.lax.add, window, strides, dilations, pads)
    if attributes.get("count_include_pad"):
        return total / np.prod(window).astype(x.dtype)
    ones = jnp.ones((1, 1, *x.shape[2:]), x.dtype)
    return total / _reduced_windows(ones, zero, jax.lax.add, window, strides, dilations, pads)


def _reduced_windows(
    x: Value, start: Any, fn: Any, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: _Pairs
) -> Value:
    return jax.lax.reduce_window(
        x,
        start,
        fn,
        (1, 1, *window),
        (1, 1, *strides),
        [(0, 0), (0, 0), *pads],
        window_dilation=(1, 1, *dilations),
    )


def _window(attributes: Attributes, x: Value, window: Sequence[int]) -> tuple[list[int], list[int], _Pairs]:
    """Strides, dilations and padding per dimension of space."""
    if attributes.get("ceil_mode"):
        raise InputError("it rounds sizes up", fix="export it with ceil_mode=0")
    count = len(window)
    strides = list(attributes.get("strides", [1] * count))
    dilations = list(attributes.get("dilations", [1] * count))
    kind = attributes.get("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        explicit = attributes.get("pads", [0] * 2 * count) if kind == "NOTSET" else [0] * 2 * count
        return strides, dilations, list(zip(explicit[:count], explicit[count:], strict=True))
    pads = []
    for size, extent, stride, dilation in zip(x.shape[2:], window, strides, dilations, strict=True):
        reach = (extent - 1) * dilation + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        less = total // 2  # of an odd number, "upper" pads the end with one more
        pads.append((less, total - less) if kind == "SAME_UPPER" else (total - less, less))
    return strides, dilations, pads


OPS: Final[Mapping[str, Operator]] = {
    "Abs": _unary(jnp.abs),
    "Add": _elementwise("add"),
    "And": _elementwise("logical_and"),
    "ArgMax": _arg_max,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Ceil": _unary(jnp.ceil),
    "Clip": _clip,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Div": _div,
    "Dropout": lambda attributes, x, *_: x,
    "Einsum": lambda attributes, *values: jnp.einsum(attributes["equation"], *values),
    "Elu": _elu,
    "Equal": _elementwise("equal"),
    "Erf": _unary(jax.scipy.special.erf),
    "Exp": _unary(jnp.exp),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _unary(jnp.floor),
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global(jnp.mean),
    "GlobalMaxPool": _global(jnp.max),
    "Greater": _elementwise("greater"),
    "HardSigmoid": lambda a, x: jnp.clip(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda attributes, x: x * jnp.clip(x / 6 + 0.5, 0, 1),
    "Identity": lambda attributes, x: x,
    "LayerNormalization": _layer_normalization,
    "LeakyRelu": lambda attributes, x: jnp.where(x >= 0, x, attributes.get("alpha", 0.01) * x),
    "Less": _elementwise("less"),
    "Log": _unary(jnp.log),
    "LogSoftmax": _softmax(jax.nn.log_softmax),
    "MatMul": _elementwise("matmul"),
    "Max": _elementwise("maximum"),
    "MaxPool": _max_pool,
    "Min": _elementwise("minimum"),
    "Mul": _elementwise("multiply"),
    "Neg": _unary(jnp.negative),
    "Not": _unary(jnp.logical_not),
    "Or": _elementwise("logical_or"),
    "PRelu": lambda attributes, x, slope: jnp.where(x >= 0, x, slope * x),
    "Pad": _pad,
    "Pow": lambda attributes, x, y: jnp.power(jnp.asarray(x), y),
    "Reciprocal": _unary(jnp.reciprocal),
    "ReduceMax": _reduced("max"),
    "ReduceMean": _reduced("mean"),
    "ReduceMin": _reduced("min"),
    "ReduceProd": _reduced("prod"),
    "ReduceSum": _reduced("sum"),
    "Relu": _unary(jax.nn.relu),
    "Reshape": _reshape,
    "Selu": _selu,
    "Shape": _shape,
    "Sigmoid": _unary(jax.nn.sigmoid),
    "Slice": _slice,
    "Softmax": _softmax(jax.nn.softmax),
    "Softplus": _unary(jax.nn.softplus),
    "Split": _split,
    "Sqrt": _unary(jnp.sqrt),
    "Squeeze": _squeeze,
    "Sub": _elementwise("subtract"),
    "Sum": _elementwise("add"),
    "Tanh": _unary(jnp.tanh),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda attributes, condition, x, y: _numpy_of(condition, x, y).where(condition, x, y),
}
"""Operator → what computes it."""
