"""What a preprocessing function may call beside JAX itself: missing values, categories, scaling, analyzers.

An analyzer (`mean`, `quantiles`, `vocabulary` …) is a value of the whole training data: it is computed in a full pass
before anything is transformed, may be used in arithmetic like any array, and may look at columns that other analyzers
helped to make (that takes another pass).

One rule holds for what is not a value. Missing means null, and for floats also NaN. Analyzers leave out null, NaN and
±Inf (a row of a vector counts in `covariance`, `correlation` and `pca` only if it is finite throughout; `size` counts
rows); of no value at all a count or sum is 0, anything else NaN. Mappers keep a missing float as NaN, give ±Inf what
their formula gives, and give a missing category an id of its own. Weights must be there, finite and not negative. A row
whose key or label is missing is left out, and a key not seen in training has no statistics.

Each module names in `__all__` what it gives to users; these names together are the face of this package.
"""

# ruff: noqa: F403  # what a star brings is the `__all__` of the module: a new op is written in one file

from typing import TYPE_CHECKING

from . import (
    arguments,
    categories,
    checks,
    dates,
    lists,
    per_key,
    reducers,
    scaling,
    statistics,
    text,
    tft_names,
    values,
    vocabularies,
)
from .arguments import *
from .categories import *
from .checks import *
from .dates import *
from .lists import *
from .per_key import *
from .reducers import *
from .scaling import *
from .statistics import *
from .text import *
from .values import *
from .vocabularies import *

__all__: list[str] = []
__all__ += arguments.__all__
__all__ += categories.__all__
__all__ += checks.__all__
__all__ += dates.__all__
__all__ += lists.__all__
__all__ += per_key.__all__
__all__ += reducers.__all__
__all__ += scaling.__all__
__all__ += statistics.__all__
__all__ += text.__all__
__all__ += values.__all__
__all__ += vocabularies.__all__

if not TYPE_CHECKING:  # mypy would take any name for one of ours

    def __getattr__(name: str) -> object:
        raise AttributeError(f"there is no ops.{name}{tft_names.meant(name, __all__, tft_names.OPS)}")
