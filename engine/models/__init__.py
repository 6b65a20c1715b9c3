"""Network architectures, as Flax NNX modules: for examples, for benchmarks, and to begin a model of one's own with.

Names load on first use, as those of `engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .recommendation import DLRM as DLRM
    from .recommendation import ROWS_OVER_DEVICES as ROWS_OVER_DEVICES
    from .recommendation import WideAndDeep as WideAndDeep
    from .recommendation import table_ids as table_ids
    from .resnet import ResNet as ResNet

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "recommendation": "DLRM ROWS_OVER_DEVICES WideAndDeep table_ids",
        "resnet": "ResNet",
    },
)
