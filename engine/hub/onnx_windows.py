"""ONNX's operators that slide a window over an image: convolution and pooling, in any number of dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError

Array = Any  # a JAX array [batch, channels, *space]
Attributes = Mapping[str, Any]  # Any: numbers, texts and lists, by ONNX's names
Pairs = list[tuple[int, int]]


def conv(attributes: Attributes, x: Array, kernel: Array, bias: Array | None = None) -> Array:
    """Conv, grouped and dilated as the attributes say."""
    x, kernel = jnp.asarray(x), jnp.asarray(kernel)
    window = kernel.shape[2:]
    strides, dilations, pads = _window(attributes, x, window)
    convolved = jax.lax.conv_general_dilated(
        x, kernel, strides, pads, rhs_dilation=dilations, feature_group_count=attributes.get("group", 1)
    )
    return convolved if bias is None else convolved + jnp.reshape(bias, (-1, *[1] * len(window)))


def max_pool(attributes: Attributes, x: Array) -> Array:
    """MaxPool's first output; its second, the indices of the maxima, is not computed."""
    x = jnp.asarray(x)
    window = attributes["kernel_shape"]
    strides, dilations, pads = _window(attributes, x, window)
    least = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else np.iinfo(x.dtype).min
    return _reduced(x, x.dtype.type(least), jax.lax.max, window, strides, dilations, pads)


def average_pool(attributes: Attributes, x: Array) -> Array:
    """AveragePool; padding counts only where `count_include_pad` says so."""
    x = jnp.asarray(x)
    window = attributes["kernel_shape"]
    strides, dilations, pads = _window(attributes, x, window)
    zero = x.dtype.type(0)
    total = _reduced(x, zero, jax.lax.add, window, strides, dilations, pads)
    if attributes.get("count_include_pad"):
        return total / np.prod(window).astype(x.dtype)
    ones = jnp.ones((1, 1, *x.shape[2:]), x.dtype)
    return total / _reduced(ones, zero, jax.lax.add, window, strides, dilations, pads)


def _reduced(
    x: Array, start: Any, fn: Any, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Pairs
) -> Array:
    return jax.lax.reduce_window(
        x,
        start,
        fn,
        (1, 1, *window),
        (1, 1, *strides),
        [(0, 0), (0, 0), *pads],
        window_dilation=(1, 1, *dilations),
    )


def _window(attributes: Attributes, x: Array, window: Sequence[int]) -> tuple[list[int], list[int], Pairs]:
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
