"""Cases whose text is prose, written out as a preprocessing function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drivetrain.engine import ops
from golden_tft_calls import Calls, Made  # type: ignore[import-not-found]  # conftest puts this folder on the path
from golden_tft_grammar import Step, step  # type: ignore[import-not-found]  # as above
from golden_tft_ops import OPS  # type: ignore[import-not-found]  # as above


def made(said: str, value: Any, learnt: str | None = None, column: str | None = None) -> Made:
    """What a step gave, of which no other step reads a raw column."""
    return Made(step(said), value, learnt=learnt, column=column)


def taxi(calls: Calls) -> dict[str, Made]:
    c = calls.columns
    fare, tips, latitude = (ops.to_dense(c[name], 1, fill=0.0)[:, 0] for name in ("fare", "tips", "latitude"))
    hour = ops.to_dense(c["hour"], 1, fill=0)[:, 0]
    asked = step("compute_and_apply_vocabulary(top_k=3,num_oov_buckets=2,vocab_filename=company)")
    ids, name = learnt(calls, asked, ops.join(c["company"]))
    return {
        "fare_xf": made("scale_to_z_score(fare)", ops.z_score(fare)),
        "latitude_xf": made("bucketize(latitude,4)", ops.bucketize(latitude, 4)),
        "company_xf": Made(asked, ids, learnt=name),
        "hour_xf": made("to_dense(hour)", hour),
        "hot_xf": made("one_hot(hour,24)", ops.cast(ops.one_hot(hour, depth=24), "int32")),
        "tips_xf": made("tips > 0.2 fare", ops.cast(tips > fare * 0.2, "int32")),
    }


def census(calls: Calls) -> dict[str, Made]:
    c = calls.columns
    asked = step("compute_and_apply_vocabulary(num_oov_buckets=1,vocab_filename=work)")
    ids, name = learnt(calls, asked, ops.strip(c["work"]))
    depth = len(calls.outputs["work"])  # TFT's depth is a tensor, ours a number: that of the words and the unknown
    label = ops.strip(ops.regex_replace(c["label"], r"\.$", ""))
    gain = ops.to_dense(ops.min_max(c["gain"]), 1, fill=0.0)[:, 0]
    return {
        "age": made("scale_to_0_1(age)", ops.min_max(c["age"]), column="age"),
        "gain": made("fill 0", gain),
        "work": Made(step("one_hot(4)"), ops.one_hot(ids, depth=depth), learnt=name),
        "label": made("lookup(label)", ops.lookup(label, {">50K": 0, "<=50K": 1}, default=-1)),
    }


def learnt(calls: Calls, asked: Step, words: Any) -> tuple[Any, str]:
    """Ids, and our name of their vocabulary."""
    ((_, ids, name),) = OPS["compute_and_apply_vocabulary"][1](calls, asked, Made(None, words))
    return ids, name


RECIPES: dict[str, Callable[[Calls], dict[str, Made]]] = {
    "fill_missing; scale_to_z_score(fare); bucketize(latitude,4); "
    "compute_and_apply_vocabulary(company,top_k=3,num_oov_buckets=2); one_hot(hour,24); tips > 0.2 fare": taxi,
    "scale_to_0_1(age); scale_to_0_1(gain, sparse) -> fill 0; strip -> compute_and_apply_vocabulary(work,"
    "num_oov_buckets=1) -> one_hot(vocabulary size + 1); lookup(label)": census,
}
"""The text → what it means: the outputs by name."""
