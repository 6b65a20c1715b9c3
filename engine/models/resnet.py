"""Residual networks for images (ResNet), by the depths of their stages.

As in He et al., "Deep Residual Learning for Image Recognition", 2015, in the form in which Goyal et al., "Accurate,
Large Minibatch SGD", 2017, trained them and which is now usual ("v1.5"): the convolution of 3 × 3 of a bottleneck has
the stride, not the first of 1 × 1, and each block begins as the identity, the last scale of its branch being 0.
Kernels are initialised as in He et al., "Delving Deep into Rectifiers", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import jax
from flax import nnx

from ...errors import InputError

_EXPANSION: Final = 4  # of a bottleneck: its last convolution has that many times the channels of the others


class ResNet(nnx.Module):
    """Logits [batch, classes] of images [batch, height, width, channels].

    Pixels may be of any dtype; they are computed with in that of the parameters, so that `fit(…, precision="bfloat16")`
    is all that it takes to compute in bfloat16 (batch statistics are summed up in float32 all the same). Scale pixels
    to a mean near 0 before.
    """

    def __init__(
        self,
        depths: Sequence[int],
        classes: int,
        *,
        bottleneck: bool = True,
        width: int = 64,
        channels: int = 3,
        small_images: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        """Parameters and batch statistics, float32.

        Args:
            depths: Blocks of each stage. Each stage after the first halves height and width, and doubles the channels.
                ResNet-50 is (3, 4, 6, 3), 101 is (3, 4, 23, 3), 152 is (3, 8, 36, 3); without bottlenecks ResNet-18 is
                (2, 2, 2, 2) and 34 is (3, 4, 6, 3).
            classes: How many logits.
            bottleneck: Whether a block is of convolutions of 1 × 1, 3 × 3 and 1 × 1, or of two of 3 × 3.
            width: Channels of the first stage's 3 × 3 convolutions.
            channels: Of the images.
            small_images: Begin with a convolution of 3 × 3 that keeps height and width, as He et al. do for images of
                32 × 32, in place of one of 7 × 7 and a pooling that leave a quarter of them.
            rngs: Random streams; "params" is drawn from.

        Raises:
            InputError: There is no stage, one without a block, or nothing to compute with.
        """
        if not depths or min(depths) < 1:
            raise InputError(f"depths is {tuple(depths)}", fix="give each stage a block or more: (2, 2, 2, 2)")
        for name, value in {"classes": classes, "width": width, "channels": channels}.items():
            if value < 1:
                raise InputError(f"{name} is {value}", fix="use 1 or more")
        self.stem = _ConvNorm(channels, width, 3 if small_images else 7, 1 if small_images else 2, rngs=rngs)
        self.pools = not small_images
        blocks, inputs = [], width
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stride = 2 if stage and not number else 1
                blocks.append(_ResidualBlock(inputs, width << stage, stride, bottleneck=bottleneck, rngs=rngs))
                inputs = blocks[-1].outputs
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(inputs, classes, kernel_init=nnx.initializers.normal(0.01), rngs=rngs)  # Goyal et al.

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits [batch, classes]; in training, batch statistics move on."""
        hidden = nnx.relu(self.stem(images.astype(self.head.kernel.dtype)))
        if self.pools:
            hidden = nnx.max_pool(hidden, (3, 3), (2, 2), [(1, 1), (1, 1)])  # type: ignore[no-untyped-call]
        for block in self.blocks:
            hidden = block(hidden)
        logits: jax.Array = self.head(hidden.mean((1, 2)))
        return logits


class _ConvNorm(nnx.Module):
    """A convolution without a bias, for batch normalisation after it adds one; its edges are padded alike."""

    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int = 1, *, scale: float = 1.0, rngs: nnx.Rngs
    ) -> None:
        self.conv = nnx.Conv(
            inputs,
            outputs,
            (size, size),
            stride,
            padding=size // 2,
            use_bias=False,
            kernel_init=nnx.initializers.variance_scaling(2.0, "fan_out", "normal"),
            rngs=rngs,
        )
        self.norm = nnx.BatchNorm(
            outputs, momentum=0.9, epsilon=1e-5, scale_init=nnx.initializers.constant(scale), rngs=rngs
        )

    def __call__(self, hidden: jax.Array) -> jax.Array:
        hidden = self.conv(hidden)
        # Flax computes in the widest dtype that it sees, and batch statistics are of float32 whatever the rest is of.
        normalised: jax.Array = self.norm(hidden).astype(hidden.dtype)
        return normalised


class _ResidualBlock(nnx.Module):
    """A branch of convolutions, added to what came in; where the shape changes, to a projection of it."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, rngs: nnx.Rngs) -> None:
        conv = partial(_ConvNorm, rngs=rngs)
        if bottleneck:
            self.outputs = width * _EXPANSION
            branch = [conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, self.outputs, 1, scale=0.0)]
        else:
            self.outputs = width
            branch = [conv(inputs, width, 3, stride), conv(width, width, 3, scale=0.0)]
        self.branch = nnx.List(branch)
        changes = stride > 1 or inputs != self.outputs
        self.shortcut = conv(inputs, self.outputs, 1, stride) if changes else None

    def __call__(self, hidden: jax.Array) -> jax.Array:
        shortcut = hidden if self.shortcut is None else self.shortcut(hidden)
        for number, conv in enumerate(self.branch):
            hidden = conv(nnx.relu(hidden) if number else hidden)
        return nnx.relu(hidden + shortcut)
