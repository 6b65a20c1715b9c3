"""Three ops outside drivetrain: a C++ kernel, a Pallas kernel, a host op in Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pyarrow as pa
import pyarrow.compute as pc
from drivetrain.engine import custom_ops
from jax.experimental import pallas as pl

Array = Any


def soft_clip_plain(x: Array, *, limit: float) -> Array:
    return limit * jnp.tanh(x / limit)


def _soft_clip_gradient(arguments: Sequence[Array], y: Array, cotangent: Array, *, limit: float) -> tuple[Array]:
    return (cotangent * (1 - (y / limit) ** 2),)


soft_clip = custom_ops.ffi_op(
    "acme.soft_clip",
    {"cpu": custom_ops.Native(Path(__file__).with_name("soft_clip.so"), "SoftClip")},
    plain=soft_clip_plain,
    gradient=_soft_clip_gradient,
)


def squared_relu_plain(x: Array) -> Array:
    return jnp.square(jnp.maximum(x, 0))


@custom_ops.pallas_op("acme.squared_relu", plain=squared_relu_plain)
def squared_relu(x: Array, *, interpret: bool) -> Array:
    def kernel(read: Any, write: Any) -> None:
        write[...] = jnp.square(jnp.maximum(read[...], 0))

    shape: Any = jax.ShapeDtypeStruct(x.shape, x.dtype)  # type: ignore[no-untyped-call]  # JAX types no struct
    return pl.pallas_call(kernel, out_shape=shape, interpret=interpret)(x)


@custom_ops.host_op("acme.initials", returns="string")
def initials(names: pa.Array, *, letters: int = 1) -> pa.Array:
    return pc.utf8_upper(pc.utf8_slice_codeunits(names, 0, letters))
