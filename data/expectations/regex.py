"""Regular expressions as Python's `re` reads them, by RE2 where both agree: RE2 takes linear time, `re` may never end.

They agree on values of printable ASCII (but for empty ones) and patterns of the same, without the few spellings that
RE2 reads in another way; what RE2 has no words for (lookahead, back references) it refuses.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..arrays import arrow_of, numpy_of

_PRINTABLE: Final = r"\A[ -~]+\z"
# Open counts, classes within classes and operations on them, octal digits, possessive and named groups.
_OTHERWISE: Final = re.compile(r"\{,|\[[^\]]*\[|--|&&|\|\||~~|\\[0-9CQE]|[*+?}]\+|\(\?[<>(]")


def search_mask(values: Any, pattern: str) -> NDArray[np.bool_]:
    """Which texts `re.search` finds the pattern in.

    Args:
        values: pyarrow `large_binary` of UTF-8, none null.
        pattern: The expression.

    Raises:
        re.error: It is none.
    """
    wanted = re.compile(pattern)
    matching = np.zeros(len(values), np.bool_)
    rest = matching == 0
    if re.fullmatch("[ -~]*", pattern) and not _OTHERWISE.search(pattern):
        plain = numpy_of(pc.match_substring_regex(values, _PRINTABLE)).astype(np.bool_)
        try:
            hits = pc.match_substring_regex(values.filter(pa.array(plain)), pattern)
        except pa.ArrowInvalid:
            pass
        else:
            matching[plain] = numpy_of(hits)
            rest = ~plain
    texts = values.take(arrow_of(np.flatnonzero(rest))).to_pylist()
    matching[rest] = [wanted.search(text.decode()) is not None for text in texts]
    return matching
