"""The input pipeline: rows from files to batches on a device, in steps, any of which can be resumed exactly.

Names load on first use, as those of `engine`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....lazy import lazy_names

if TYPE_CHECKING:
    from .arrow_files import open_arrow as open_arrow
    from .dataset import Dataset as Dataset
    from .dataset import DatasetIterator as DatasetIterator
    from .grain_adapter import from_grain as from_grain
    from .grain_adapter import to_grain as to_grain
    from .images import DecodeImages as DecodeImages
    from .images import ShiftAndFlip as ShiftAndFlip
    from .mixing import concatenate as concatenate
    from .mixing import interleave as interleave
    from .mixing import mix as mix
    from .sources import from_arrays as from_arrays
    from .sources import from_source as from_source

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "arrow_files": "open_arrow",
        "dataset": "Dataset DatasetIterator",
        "grain_adapter": "from_grain to_grain",
        "images": "DecodeImages ShiftAndFlip",
        "mixing": "concatenate interleave mix",
        "sources": "from_arrays from_source",
    },
)
