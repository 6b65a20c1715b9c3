"""Regular expressions as Python's `re` reads them, in linear time: by RE2 where both agree, else by automata.

They agree on values of printable ASCII (but for empty ones) and patterns of the same, without the few spellings that
RE2 reads in another way; what RE2 has no words for (lookahead) it refuses.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import InputError
from ..arrays import arrow_of, numpy_of
from .automaton import Automaton, NotLinearError

_PRINTABLE: Final = r"\A[ -~]+\z"
# Open counts, classes within classes and operations on them, octal digits, possessive and named groups.
_OTHERWISE: Final = re.compile(r"\{,|\[[^\]]*\[|--|&&|\|\||~~|\\[0-9CQE]|[*+?}]\+|\(\?[<>(]")


def search_mask(values: Any, pattern: str) -> NDArray[np.bool_]:
    """Which texts `re.search` finds the pattern in.

    Args:
        values: pyarrow `large_binary` of UTF-8, none null.
        pattern: The expression.

    Raises:
        re.error: It is not one.
        InputError: It takes more than linear time, see `automaton_of`.
    """
    automaton = automaton_of(pattern)
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
    matching[rest] = [automaton.search(text.decode()) for text in texts]
    return matching


def automaton_of(pattern: str) -> Automaton:
    """The automaton of a regular expression.

    Raises:
        re.error: It is not one.
        InputError: It has what takes more than linear time (a back reference), or is too large; says what.
    """
    try:
        return Automaton(pattern)
    except NotLinearError as error:
        raise InputError(
            f"the regular expression {pattern!r:.80} could take forever on some texts: {error}",
            fix="write it without that, as RE2 would have it (look-arounds are fine)",
        ) from None
