"""Vocabularies learnt once: by frequency, weight or its information about a label; shared between columns by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict
from weakref import WeakKeyDictionary

from ...errors import InputError
from .._caller import caller
from ..tracing.columns import Column, Fact, read
from ..tracing.objects import remember
from ..tracing.primitives import Trace, bind_analyzer, bind_host, current
from .arguments import Array, Value, at_least
from .statistics import weight_of

__all__ = ["Vocabulary", "inverse_vocabulary", "learn_vocabulary", "vocabulary_size"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TAKEN: Final = "inverses"  # an asset of bundles; others that are not named by a user have a dot


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary to be learnt from the training data.

    Attributes:
        name: Its asset in the bundle, where it was given one.
        handle: A tracer: an asset with the words and what they were ordered by.
        params: How it is learnt.
        inputs: The tracers it is learnt from.
    """

    name: str | None
    handle: Any
    params: tuple[tuple[str, Any], ...]
    inputs: tuple[Any, ...]

    @property
    def most(self) -> int | None:
        """How many words it has at most; None where that depends on the data."""
        known = dict(self.params)
        if known["top_k"] is None or "key_fn" in known:  # a group's words are kept beyond top_k
            return None
        return int(known["top_k"]) + len(known["reserved"])


class VocabularyOptions(TypedDict, total=False):
    """The keyword arguments of `learn_vocabulary`."""

    top_k: int | None
    min_count: float | None
    keep_empty: bool
    weights: Value
    labels: Value
    adjusted: bool
    min_diff: float | None
    reserved: Sequence[str]
    by_digest: bool
    coverage_key: Callable[[str], object] | None
    coverage_top_k: int
    coverage_min_count: float
    name: str | None


_NAMED: Final[WeakKeyDictionary[Trace, dict[str, Vocabulary]]] = WeakKeyDictionary()


def learn_vocabulary(
    *columns: Value,
    top_k: int | None = None,
    min_count: float | None = None,
    keep_empty: bool = False,
    weights: Value = None,
    labels: Value = None,
    adjusted: bool = False,
    min_diff: float | None = 0.0,
    reserved: Sequence[str] = (),
    by_digest: bool = False,
    coverage_key: Callable[[str], object] | None = None,
    coverage_top_k: int = 1,
    coverage_min_count: float = 0,
    name: str | None = None,
) -> Vocabulary:
    """A vocabulary of the words of one or several columns, for `apply_vocabulary`.

    The order is that of TFT: by count, weight or information, descending; ties in reverse code point order.

    Args:
        columns: Text, integers (as decimals), booleans, or lists of them. With weights or labels: one.
        top_k: Keep only so many words.
        min_count: Keep only words with so many occurrences; so much weight, or information where labels are given. None
            keeps all, words of weight 0 and (adjusted) of negative information too.
        keep_empty: Whether the empty string may be a word.
        weights: Numbers, 0 or more and none missing: order by the sum of a word's weights instead of its count.
        labels: Text, integers or booleans: order by the mutual information of word and label, in bits, summed over the
            rows and not divided by them (TFT). Rows without a label are left out.
        adjusted: Whether to take off the information that chance would give.
        min_diff: A label whose weight with a word is closer to independence than that adds nothing; None: by TFT's
            rule, 2 up to 10,000 rows to 25 at a million.
        reserved: Words that come first, in this order, whether or not they occur; beyond top_k.
        by_digest: Whether the words kept stand in the order of their SHA-1 digests: an id then does not say how often
            its word occurs, and shards of an embedding table get equal work (TFT's fingerprint_shuffle).
        coverage_key: Gives a word's group; it runs once per word, after the pass.
        coverage_top_k: Keep at least so many words of each group, whatever top_k and min_count say.
        coverage_min_count: Of those with at least this count.
        name: The asset's name in the bundle (`assets/NAME.arrow`, columns `value` and `count`), and for
            `apply_vocabulary`.

    Raises:
        InputError: A column is not a category; a number is out of range; the name is taken by another vocabulary.
    """
    if not columns:
        raise InputError("a vocabulary of no column", fix="learn_vocabulary(column)", where=caller())
    read_columns = [category(column, "given to vocabulary") for column in columns]
    _check(top_k, min_count, reserved, name)
    inputs: list[Any] = [column.handle for column in read_columns]
    roles = ["value"] * len(inputs)
    params: dict[str, Any] = {"top_k": top_k, "min_count": min_count, "keep_empty": keep_empty}
    params |= {"column": "+".join(column.name for column in read_columns), "reserved": list(reserved), "name": name}
    if by_digest:
        params["by_digest"] = True
    if weights is not None or labels is not None:
        if len(inputs) > 1:
            raise InputError(
                "weights and labels go with one column", fix="learn from one column, apply to several", where=caller()
            )
        params |= {"weight": "", "label": ""}
    if weights is not None:
        by = weight_of(weights)
        inputs, roles = [*inputs, by.handle], [*roles, "weight"]
        params["weight"] = by.name
    if labels is not None:
        label = category(labels, "given as labels")
        if label.item is not None:
            raise InputError(f"the labels {label.name!r} are lists", fix="give one label per row", where=caller())
        inputs, roles = [*inputs, label.handle], [*roles, "label"]
        params |= {"label": label.name, "adjusted": bool(adjusted), "min_diff": min_diff}
    if coverage_key is not None:
        at_least("coverage_top_k", coverage_top_k, 1)
        params |= {"key_fn": remember(coverage_key), "coverage_top_k": coverage_top_k}
        params["coverage_min_count"] = coverage_min_count
    params["roles"] = roles
    return _named(name, params, inputs)


def _named(name: str | None, params: dict[str, Any], inputs: list[Any]) -> Vocabulary:
    fixed = tuple(sorted(params.items()))
    known = _NAMED.setdefault(current(), {})
    learnt = known.get(name) if name is not None else None
    if learnt is not None:
        # By identity: tracers have no value to compare, and `==` of two would be traced as one more operation.
        if learnt.params != fixed or [id(i) for i in learnt.inputs] != [id(i) for i in inputs]:
            raise InputError(
                f"the vocabulary {name!r} is already learnt, from other columns or otherwise",
                fix=f"ops.apply_vocabulary(column, {name!r}) uses it; or choose another name",
                where=caller(),
            )
        return learnt
    vocabulary = Vocabulary(name, bind_analyzer("vocabulary", inputs, ("vocabulary", ()), params), fixed, tuple(inputs))
    if name is not None:
        known[name] = vocabulary
    return vocabulary


def vocabulary_of(vocabulary: Vocabulary | str) -> Vocabulary:
    """A vocabulary, or the one of that name. Raises InputError where the function has learnt none so far."""
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    known = _NAMED.get(current(), {})
    if vocabulary not in known:
        others = f"; known: {', '.join(known)}" if known else ""
        fix = f"ops.learn_vocabulary(column, name={vocabulary!r}) first{others}"
        raise InputError(f"there is no vocabulary {vocabulary!r}", fix=fix, where=caller())
    return known[vocabulary]


def vocabulary_size(vocabulary: Vocabulary | str | Value) -> Array:
    """int32 scalar: how many words it has, reserved ones included; of ids, the vocabulary that made them."""
    if not isinstance(vocabulary, (Vocabulary, str)):
        size = read(vocabulary, "given to vocabulary_size").fact.size
        if size is None or size.vocabulary is None:
            raise InputError(
                "these ids are not of a learnt vocabulary", fix="pass what vocabulary gave", where=caller()
            )
        return bind_host("asset_size", [size.vocabulary], [("int32", (), False)], {})[0]
    learnt = vocabulary_of(vocabulary)
    return bind_analyzer("vocabulary_size", list(learnt.inputs), ("int32", ()), {**dict(learnt.params), "name": None})


def inverse_vocabulary(ids: Value, vocabulary: Vocabulary | str | None = None) -> Column:
    """The words of ids, as a text column: missing where an id is not a word's (unknown, missing).

    Args:
        ids: What `vocabulary` or `apply_vocabulary` gave, or any int32 array [batch].
        vocabulary: Whose words; by default that which made the ids.
    """
    column = read(ids, "given to inverse_vocabulary")
    size = column.fact.size
    handle = vocabulary_of(vocabulary).handle if vocabulary is not None else size.vocabulary if size else None
    if handle is None:
        raise InputError(
            "these ids are not known to be of a vocabulary", fix="inverse_vocabulary(ids, vocabulary)", where=caller()
        )
    if column.values.ndim != 1 or column.values.dtype.kind != "i":
        raise InputError("ids are whole numbers, one per row", fix="cast them to int32", where=caller())
    (words,) = bind_host("words", [column.values, handle], [("string", ("b",), True)], {})
    return Column(column.name, "string", Fact(column.name, words, "string"))


def category(x: Value, doing: str) -> Column:
    """A column whose values are words: text, integers, booleans, or lists of text or integers.

    Raises:
        InputError: It is float, or of a type that the engine does not read.
    """
    column = read(x, doing)
    column._check_readable()
    if column.dtype.startswith("float") or column.item == "float64":
        raise InputError(
            f"column {column.name!r} is float, no category", fix="bucketize it, or cast it to int32", where=caller()
        )
    return column


def _check(top_k: int | None, min_count: float | None, reserved: Sequence[str], name: str | None) -> None:
    if top_k is not None:
        at_least("top_k", top_k, 1)
    if min_count is not None and (isinstance(min_count, bool) or not min_count >= 0):
        raise InputError(f"min_count is {min_count!r}", fix="use a number, 0 or more", where=caller())
    if isinstance(reserved, str) or not all(isinstance(word, str) for word in reserved):
        raise InputError(f"reserved is {reserved!r:.60}", fix="give a list of texts", where=caller())
    if name is not None and (not _NAME.fullmatch(name) or name == _TAKEN):
        fix = "use letters, digits, - and _" if not _NAME.fullmatch(name) else "drivetrain uses that name itself"
        raise InputError(f"a vocabulary cannot be named {name!r:.80}", fix=fix, where=caller())
