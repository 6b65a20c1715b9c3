"""Network architectures, as Flax NNX modules: for examples, for benchmarks, and to begin a model of one's own with.

Names load on first use, as those of `engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .resnet import ResNet as ResNet

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "resnet": "ResNet",
    },
)
