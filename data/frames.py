"""Results as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import missing_extra


def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:  # a pandas.DataFrame: pandas ships no types
    """A DataFrame of rows.

    Raises:
        DrivetrainError: pandas is not installed; names the extra.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "pandas") from error
    return pd.DataFrame(list(rows), columns=list(columns))
