"""Regular expressions by RE2 find what Python's find, and end."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import suppress

import pyarrow as pa
import pytest
from drivetrain.data.expectations.regex import search_mask
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

# What the two dialects have in common, what one of them lacks, and what they read in two ways.
PIECES = (
    *"abA1_ -^$.|*+?(){}[],#~&\\", "*?", "{2}", "{1,}", "{,2}", "[ab]", "[^a]", "[a-z0-9]", "[]a]", "[[:alpha:]]",
    "[a--b]",
    *(f"\\{letter}" for letter in "dDwWsSbBAZzQECpKtn.-1"), "(?:", "(?i)", "(?s)", "(?m)", "(?x)", "(?=a)", "(?P<n>",
    "(?<n>",
    "(?>", "(?U)", "(?-i:", "\\x41", "\\x{41}", "\\101", "\\0", "é", "K", "(?!", "(?<=a)", "(?<!b)", "(?<=ab|ba)",
    "(?i:", "(?m:$)", "(?a:", "(?x: a b)", "(?a)", "(?:a|)", "(a?)", "ß", "ſ",
)  # fmt: skip
VALUES = (
    "", "a", "A", "ab", "aB1", "_", " ", "a-b", "aa", "]", "\\", "$", "a{2", "{,2}", "#", "b a", "~", "é", "a\n", "\n",
    "a\nb", "K", "k", "\x0b", "\x1c", "ſ", "Q", "z", "a++", "&&", "\x00", "éa", "aé b", "Éß\n", "ab ab", "bab", "abaé",
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
        values = pa.array([value.encode() for value in VALUES], pa.large_binary())
        if re.search(r"\\\d|[*+?}]\+|\(\?>|\(\?\(", pattern):  # perhaps one of those that no automaton can do
            with suppress(InputError):
                assert search_mask(values, pattern).tolist() == wanted
            return
        matching = search_mask(values, pattern)
    assert matching.tolist() == wanted


@pytest.mark.parametrize("last", ["!", "é"])
def test_an_expression_that_python_takes_ages_for(last: str) -> None:
    values = pa.array([f"{'a' * 1000}{last}".encode()] * 100, pa.large_binary())
    start = time.thread_time()
    for pattern in (
        "^(a+)+$",
        "^(a|a)*$",
        "(.*)*[0-9]$",
        r"^(\w+\s?)*!?$",
        "^(?=a)(a+)+$",
        "(?<!b)(a+)+$",
        "(?i)^(a+)+$",
    ):
        assert search_mask(values, pattern).any() == (r"\w" in pattern)
    assert time.thread_time() - start < 20


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"(.)\1", "a back reference"),
        ("(a)?(?(1)b|c)", "a condition on a group"),
        ("(?>a+)b", "an atomic group"),
        ("a++b", "a possessive repeat"),
        ("(?:a{1,1000}){1,1000}", "more than 10,000 states"),
        ("(?:(?=a{100}(?!b{100}))|(?=c{1000})){100}(?=d{9000})", "more than 10,000 states"),
    ],
)
def test_what_could_take_forever_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(InputError, match=f"could take forever on some texts: it .*{says}"):
        search_mask(pa.array([b"a"], pa.large_binary()), pattern)


@pytest.mark.parametrize("pattern", ["(", "(" * 5000 + ")" * 5000, "a{99999999999}"])
def test_no_expression(pattern: str) -> None:
    with pytest.raises(re.error):
        search_mask(pa.array([b"a"], pa.large_binary()), pattern)
