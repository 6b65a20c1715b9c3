"""Text ops by Arrow's own functions; for a single row by Python's, where these are the same.

Regular expressions are RE2's: no backtracking, so no text and no pattern takes more than linear time. A batch's
dictionary is looked at once per distinct word. Null stays null; in lists every text is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...data.types import is_list
from ...errors import InputError
from .columns import ARROW, Assets, Kernel, Params
from .lists import lists_of

Words = Callable[[pa.Array], pa.Array]  # a string array → an array as long, null for null
Plain = Callable[[Params], Callable[[str], Any]]  # one text → its result by Python, None where Arrow must say


_SHORT: Final = 64  # code points of a text whose result a row kernel remembers
_REMEMBERED: Final = 1024  # results


def batch_of(make: Callable[[Params], Words]) -> Callable[..., Kernel]:
    """The maker of a batch kernel: of a dictionary, each word is looked at once."""

    def batch(params: Params, assets: Assets) -> Kernel:
        fn = make(params)

        def kernel(column: pa.Array) -> pa.Array:
            if is_list(column.type):
                lists = lists_of(column)
                return lists.with_flat(fn(lists.flat))
            if not pa.types.is_dictionary(column.type):
                return fn(column)
            transformed = fn(column.dictionary.cast(pa.string()))
            if pa.types.is_string(transformed.type):
                return pa.DictionaryArray.from_arrays(column.indices, transformed)
            return transformed.take(column.indices)

        return kernel

    return batch


def row_of(make: Callable[[Params], Words], plain: Plain | None = None) -> Callable[..., Kernel]:
    """The maker of a row kernel: Python's own string methods where they agree with Arrow, else Arrow.

    Arrow compiles a regular expression at every call, which takes tens of microseconds; Python's `re` is not a way
    round it, as it backtracks. So the results of short texts are remembered: categories come again and again.
    """

    def row(params: Params, assets: Assets) -> Kernel:
        fn, quick = make(params), None if plain is None else plain(params)

        def by_arrow(text: str) -> Any:
            return fn(_array([text]))[0].as_py()

        remembered = lru_cache(_REMEMBERED)(by_arrow)

        def of_text(text: str) -> Any:
            if quick is not None and (quick_answer := quick(text)) is not None:
                return quick_answer
            return remembered(text) if len(text) <= _SHORT else by_arrow(text)

        def kernel(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, list):
                return [of_text(text) for text in value] if quick else fn(_array(value)).to_pylist()
            return of_text(value)

        return kernel

    return row


def _array(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError as error:
        raise InputError(
            f"{error.object!r:.80} is not text: {error.object[error.start]!r} is half a character",
            fix="send Unicode text, without lone surrogates",
        ) from error


def strip(params: Params) -> Words:
    """Without the characters (default: Unicode whitespace) at both ends."""
    characters = params["characters"]
    return pc.utf8_trim_whitespace if characters is None else lambda words: pc.utf8_trim(words, characters)


def lower(params: Params) -> Words:
    """In lower case, by Unicode, character by character."""
    return lambda words: pc.utf8_lower(words)


def upper(params: Params) -> Words:
    """In upper case, as `lower`."""
    return lambda words: pc.utf8_upper(words)


def replace(params: Params) -> Words:
    r"""Every match replaced; \1 … \9 are its groups."""
    pattern, by = params["pattern"], params["replacement"]
    return lambda words: pc.replace_substring_regex(words, pattern, by)


def matches(params: Params) -> Words:
    """Whether the pattern matches somewhere, or all of the text."""
    pattern = rf"\A(?:{params['pattern']})\z" if params["full"] else params["pattern"]
    return lambda words: pc.match_substring_regex(words, pattern)


def starts_with(params: Params) -> Words:
    """Whether the text starts with another."""
    return lambda words: pc.starts_with(words, params["part"])


def ends_with(params: Params) -> Words:
    """Whether the text ends with another."""
    return lambda words: pc.ends_with(words, params["part"])


def length(params: Params) -> Words:
    """Code points or UTF-8 bytes."""
    of = {"chars": pc.utf8_length, "bytes": pc.binary_length}[params["unit"]]
    return lambda words: of(words).cast(pa.int64())


def substr(params: Params) -> Words:
    """Code points start … stop − 1; negative ones count from the end."""
    start, stop = params["start"], params["stop"]
    return lambda words: pc.utf8_slice_codeunits(words, start, stop)


def translate(params: Params) -> Words:
    """By a table of words; the default for others."""
    kind, known = ARROW[params["dtype"]], pa.array([key for key, _ in params["table"]], pa.string())
    values = pa.array([*(value for _, value in params["table"]), params["default"]], kind)

    def fn(words: pa.Array) -> pa.Array:
        translated = values.take(pc.index_in(words, value_set=known).fill_null(len(known)))
        return pc.if_else(words.is_valid(), translated, pa.scalar(None, kind))

    return fn


def translate_row(params: Params, assets: Assets) -> Kernel:
    """As `translate`, for one text or list: Arrow's search builds its table anew at every call."""
    known, default = dict(params["table"]), params["default"]
    if params["dtype"] == "float64":
        known, default = {k: float(v) for k, v in known.items()}, None if default is None else float(default)

    def kernel(value: Any) -> Any:
        if isinstance(value, list):
            return [known.get(word, default) for word in value]
        return None if value is None else known.get(value, default)

    return kernel


def split(params: Params) -> Words:
    """Cut at whitespace, at every one of the delimiters, or where the pattern matches; empty pieces dropped."""
    cut = _pieces(params)

    def fn(words: pa.Array) -> pa.Array:
        lists = lists_of(cut(words))
        return lists.where(pc.not_equal(lists.flat, "").to_numpy(zero_copy_only=False)).column()

    return fn


def split_row(params: Params, assets: Assets) -> Kernel:
    """As `split`, for one text; delimiters need no Arrow."""
    cut, delimiters = _pieces(params), params["delimiters"]

    def pieces(value: str) -> list[str]:
        if delimiters is None:
            if params["pattern"] is None and value.isascii():
                return value.split()
            by_arrow: list[str] = cut(_array([value]))[0].as_py()
            return by_arrow
        for other in delimiters[1:]:
            value = value.replace(other, delimiters[0])
        return value.split(delimiters[0])

    return lambda value: None if value is None else [piece for piece in pieces(value) if piece]


def _pieces(params: Params) -> Words:
    delimiters, pattern = params["delimiters"], params["pattern"]

    def cut(words: pa.Array) -> pa.Array:
        if delimiters is not None:
            for other in delimiters[1:]:
                words = pc.replace_substring(words, other, delimiters[0])
            return pc.split_pattern(words, delimiters[0])
        if pattern is None:
            # Trimmed, as Arrow 25 looks at the byte behind the last text to see whether whitespace ends there.
            return pc.utf8_split_whitespace(pc.utf8_trim_whitespace(words))
        # Not split_pattern_regex: it never ends where a pattern matches nothing, as "x*" and "\b" do.
        mark = _unused(words)
        return pc.split_pattern(pc.replace_substring_regex(words, pattern, mark), mark)

    return cut


def _unused(words: pa.Array) -> str:
    """A character that none of the words has."""
    for code in chain(range(0xFDD0, 0xFDF0), range(0xE000, 0xF900)):  # noncharacters, then those of private use
        if not pc.any(pc.match_substring(words, chr(code))).as_py():
            return chr(code)
    raise InputError("a text has every character of private use", fix="clean it before it is split")


def concat_batch(params: Params, assets: Assets) -> Kernel:
    """Texts of several columns and constants joined; null where one is."""
    parts, separator = params["parts"], params["separator"]

    def kernel(*columns: pa.Array) -> pa.Array:
        remaining = iter(columns)
        texts = [next(remaining) if part is None else pa.scalar(part) for part in parts]
        plain = [t.dictionary_decode() if isinstance(t, pa.DictionaryArray) else t for t in texts]
        return pc.binary_join_element_wise(*(t.cast(pa.string()) for t in plain), separator)

    return kernel


def concat_row(params: Params, assets: Assets) -> Kernel:
    """As `concat_batch`, for one row."""
    parts, separator = params["parts"], params["separator"]

    def kernel(*values: str | None) -> str | None:
        remaining = iter(values)
        texts = [next(remaining) if part is None else part for part in parts]
        return None if any(text is None for text in texts) else separator.join(texts)

    return kernel


def join_batch(params: Params, assets: Assets) -> Kernel:
    """The texts of each list joined; a missing list is null, an empty one the empty text."""
    return lambda column: pc.binary_join(column, params["separator"])


def join_row(params: Params, assets: Assets) -> Kernel:
    """As `join_batch`, for one list."""
    return lambda values: None if values is None else params["separator"].join(values)


def _if_ascii(fn: Callable[[str], str]) -> Callable[[str], str | None]:
    return lambda text: fn(text) if text.isascii() else None


def _length(params: Params) -> Callable[[str], int]:
    return len if params["unit"] == "chars" else lambda text: len(text.encode("utf-8", "surrogatepass"))


OPS: Final[Mapping[str, tuple[Callable[[Params], Words], Plain | None]]] = {
    "strip": (
        strip,
        lambda params: (
            _if_ascii(str.strip) if params["characters"] is None else lambda text: text.strip(params["characters"])
        ),
    ),
    "lower": (lower, lambda params: _if_ascii(str.lower)),
    "upper": (upper, lambda params: _if_ascii(str.upper)),
    "regex_replace": (replace, None),
    "matches": (matches, None),
    "starts_with": (starts_with, lambda params: lambda text: text.startswith(params["part"])),
    "ends_with": (ends_with, lambda params: lambda text: text.endswith(params["part"])),
    "length": (length, _length),
    "substr": (substr, lambda params: lambda text: text[params["start"] : params["stop"]]),
}
"""The ops of one text, by name: by Arrow, and by Python where that is the same."""
