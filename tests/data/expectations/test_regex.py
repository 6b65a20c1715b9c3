"""Regular expressions by RE2 find what Python's find, and end."""

from __future__ import annotations

import re
import time
import warnings

import pyarrow as pa
import pytest
from drivetrain.data.expectations.regex import search_mask
from hypothesis import given, settings
from hypothesis import strategies as st

# What the two dialects have in common, what one of them lacks, and what they read in two ways.
PIECES = (
    *"abA1_ -^$.|*+?(){}[],#~&\\", "*?", "{2}", "{1,}", "{,2}", "[ab]", "[^a]", "[a-z0-9]", "[]a]", "[[:alpha:]]",
    "[a--b]",
    *(f"\\{letter}" for letter in "dDwWsSbBAZzQECpKtn.-1"), "(?:", "(?i)", "(?s)", "(?m)", "(?x)", "(?=a)", "(?P<n>",
    "(?<n>",
    "(?>", "(?U)", "(?-i:", "\\x41", "\\x{41}", "\\101", "\\0", "é", "K",
)  # fmt: skip
VALUES = (
    "", "a", "A", "ab", "aB1", "_", " ", "a-b", "aa", "]", "\\", "$", "a{2", "{,2}", "#", "b a", "~", "é", "a\n", "\n",
    "a\nb", "K", "k", "\x0b", "\x1c", "ſ", "Q", "z", "a++", "&&", "\x00",
)  # fmt: skip


@settings(deadline=None, max_examples=500)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join))
def test_what_python_finds(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Python's, of [[
        try:
            wanted = [re.search(pattern, value) is not None for value in VALUES]
        except re.error:
            return
        found = search_mask(pa.array([value.encode() for value in VALUES], pa.large_binary()), pattern)
    assert found.tolist() == wanted


def test_an_expression_that_python_takes_ages_for() -> None:
    values = pa.array([b"a" * 1000 + b"!"] * 100, pa.large_binary())
    start = time.thread_time()
    for pattern in ("^(a+)+$", "^(a|a)*$", "(.*)*[0-9]$", r"^(\w+\s?)*$"):
        assert not search_mask(values, pattern).any()
    assert time.thread_time() - start < 20


def test_no_expression() -> None:
    with pytest.raises(re.error):
        search_mask(pa.array([b"a"], pa.large_binary()), "(")
