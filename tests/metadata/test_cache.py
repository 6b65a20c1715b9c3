"""Cache keys: different things have different keys, the same thing one; and what changed is said readably."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import cache_key, explain
from hypothesis import given
from hypothesis import strategies as st

ASCII = st.characters(max_codepoint=127, exclude_characters="\0")
KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(ASCII, max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(ASCII, max_size=3), inner, max_size=3),
    max_leaves=8,
)
PREIMAGES = st.dictionaries(st.sampled_from(["code", "inputs", "parameters", "x"]), VALUES, max_size=4)


def test_collisions_of_the_peers_differ() -> None:
    different: list[dict[str, Any]] = [
        {"a": "bc"}, {"ab": "c"}, {"a": 1, "b": 2}, {"a": "1b2"}, {"a": 1}, {"a": "1"}, {"a": 1.0}, {"a": True},
        {"a": None}, {}, {"a": []}, {"a": {}}, {"a": [[1], 2]}, {"a": [1, [2]]}, {"a": [1, 2]}, {"a": [2, 1]},
    ]  # fmt: skip
    keys = [cache_key(preimage) for preimage in different]
    assert len(set(keys)) == len(different)
    assert all(len(key) == 64 for key in keys)


def test_the_key_of_a_release_stays() -> None:
    # A fixture: were this to change, every cache would be lost.
    preimage = {"component": "Trainer", "parameters": {"epochs": 2, "rate": 0.1, "name": "é"}, "inputs": {"x": ["ab"]}}
    assert cache_key(preimage) == "09eb5558d9f7de2408d78a37273d757759929401f39c2f5645bdc09799c0700a"


@given(PREIMAGES, PREIMAGES)
def test_keys_are_equal_exactly_when_nothing_is_explained(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert (cache_key(before) == cache_key(after)) == (explain(before, after) == [])


@given(PREIMAGES)
def test_a_key_survives_the_store(preimage: dict[str, Any]) -> None:
    assert cache_key(json.loads(json.dumps(preimage))) == cache_key(preimage)
    shuffled = dict(reversed(preimage.items()))
    assert cache_key(shuffled) == cache_key(preimage)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 2**64, "\ud800", "\0", b"", {1: 2}])
def test_what_is_no_json_has_no_key(value: object) -> None:
    with pytest.raises(InputError):
        cache_key({"a": value})


A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({}, {}, []),
        ({"code": {"trainer.py": A}}, {"code": {"trainer.py": B}}, ["code changed: trainer.py"]),
        (
            {"parameters": {"fn": {"$fn": "features:preprocess", "code": {"features.py": A, "helpers.py": A}}}},
            {"parameters": {"fn": {"$fn": "features:preprocess", "code": {"features.py": A, "helpers.py": B}}}},
            ["code of features:preprocess changed: helpers.py"],
        ),
        (
            {"parameters": {"fn": {"$fn": "m:f", "code": {"old.py": A}}}},
            {"parameters": {"fn": {"$fn": "m:f", "code": {"new.py": A}}}},
            ["code of m:f added: new.py", "code of m:f removed: old.py"],
        ),
        (
            {"parameters": {"fn": {"$fn": "m:f", "code": {"m.py": A}}}},
            {"parameters": {"fn": {"$fn": "m:g", "code": {"m.py": A}}}},
            ['parameter fn: "m:f" -> "m:g"'],
        ),
        ({"parameters": {"a": 1}}, {"parameters": {"a": 2}}, ["parameter a: 1 -> 2"]),
        ({"parameters": {"a": 1}}, {"parameters": {"a": 1.0}}, ["parameter a: 1 -> 1.0"]),
        ({"parameters": {"a": 1}}, {"parameters": {}}, ["parameter a removed: 1"]),
        ({"parameters": {}}, {"parameters": {"a": "x"}}, ['parameter a added: "x"']),
        (
            {"parameters": {"splits": [["train", 2], ["eval", 1]]}},
            {"parameters": {"splits": [["train", 2], ["eval", 3]]}},
            ["parameter splits.eval: 1 -> 3"],
        ),
        (
            {"parameters": {"splits": [["train", 2], ["eval", 1]]}},
            {"parameters": {"splits": [["eval", 1], ["train", 2]]}},
            ['parameter splits.order: ["train","eval"] -> ["eval","train"]'],
        ),
        ({"parameters": {"l": [1, 2]}}, {"parameters": {"l": [1, 3]}}, ["parameter l[1]: 2 -> 3"]),
        (
            {"parameters": {"h": {"$map": [["rate", 1], ["deep", {"$map": [["a", 1]]}]]}}},
            {"parameters": {"h": {"$map": [["rate", 2], ["deep", {"$map": [["a", 3]]}]]}}},
            ["parameter h.rate: 1 -> 2", "parameter h.deep.a: 1 -> 3"],
        ),
        (
            {"parameters": {"h": None}},
            {"parameters": {"h": {"$map": [["rate", 1], ["deep", {"$map": []}], ["l", [{"$map": [["a", 1]]}]]]}}},
            ['parameter h: null -> {"deep":{},"l":[{"a":1}],"rate":1}'],
        ),
        (
            {
                "parameters": {
                    "data": {"$query": ["SELECT 1", "env:DB", {"$map": [["a", 1]]}, None, "x"], "$span": [1, 2]}
                }
            },
            {
                "parameters": {
                    "data": {"$query": ["SELECT 2", "env:DB", {"$map": [["a", 2]]}, None, "y"], "$span": [1, 3]}
                }
            },
            [
                "parameter data.parameters.a: 1 -> 2",
                'parameter data.seen: "x" -> "y"',
                'parameter data.sql: "SELECT 1" -> "SELECT 2"',
                "parameter data.version: 2 -> 3",
            ],
        ),
        ({"inputs": {"x": [A]}}, {"inputs": {"x": [B]}}, ["input x: fingerprint aaaaaaaa… -> bbbbbbbb…"]),
        ({"inputs": {"x": [A]}}, {"inputs": {"x": [A, B]}}, ["input x[1] added: bbbbbbbb…"]),
        ({"inputs": {}}, {"inputs": {"x": [A]}}, ["input x added: aaaaaaaa…"]),
        (
            {"inputs": {"x": [A, B] * 3}},
            {"inputs": {}},
            ["input x removed: aaaaaaaa…, bbbbbbbb…, aaaaaaaa… and 3 more"],
        ),
        ({"environment": {"jax": "1"}}, {"environment": {"jax": "2"}}, ['environment jax: "1" -> "2"']),
        ({"component": "a"}, {"component": "b"}, ['component: "a" -> "b"']),
        (
            {"parameters": {"data": {"$files": [["a.csv", 1922812, A], ["b.csv", 5, A], ["d.csv", 7, A]]}}},
            {"parameters": {"data": {"$files": [["a.csv", 2031654, B], ["c.csv", 5, A], ["d.csv", 7, B]]}}},
            [
                "parameter data: file a.csv changed (1,922,812 -> 2,031,654 bytes)",
                "parameter data: file c.csv added (5 bytes)",
                "parameter data: file d.csv changed (7 bytes)",
                "parameter data: file b.csv removed (5 bytes)",
            ],
        ),
        (
            {"environment": {"distributions": {"jax": "0.4", "optax": "1"}}},
            {"environment": {"distributions": {"jax": "0.5", "flax": "2"}}},
            ["flax 2 added", "jax 0.4 -> 0.5", "optax 1 removed"],
        ),
    ],
)
def test_explanations_are_sentences(old: dict[str, Any], new: dict[str, Any], lines: list[str]) -> None:
    assert explain(old, new) == lines
