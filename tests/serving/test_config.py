"""The file of models: what it holds, and mistakes at their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.serving.batching import BatchingOptions
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.traffic import TrafficSplit

WHOLE = """
models:
  flights:
    base_path: serving/flights
    versions: latest 2
    labels: {stable: 3, canary: 4}
    traffic: {canary: 10, 2: 0.5}
    batching: {max_batch_size: 32, batch_timeout_micros: 500}
  delays:
    base_path: s3://bucket/serving/delays
    versions: [3, 5]
  late: {base_path: /models/late, versions: all, require_signed: keys/late.pub}
"""


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    for address in ("s3://u:pa55word99@host/x", "https://host/x?token=pa55word99"):
        with pytest.raises(InputError, match="holds a password or a token") as refused:
            ModelConfig("m", address)
        assert "pa55word99" not in str(refused.value)


def test_every_field(tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(WHOLE)
    batching = BatchingOptions(32, 500)
    assert read_models(tmp_path / "models.yaml") == [
        ModelConfig(
            "flights",
            str(tmp_path / "serving/flights"),
            num_versions=2,
            labels={"stable": 3, "canary": 4},
            batching=batching,
            traffic=TrafficSplit({4: 10, 2: 0.5}, "flights"),
        ),
        ModelConfig("delays", "s3://bucket/serving/delays", "specific", versions=(3, 5)),
        ModelConfig("late", "/models/late", "all", require_signed=str(tmp_path / "keys/late.pub")),
    ]


def test_versions_wanted() -> None:
    there = [1, 2, 3, 5]
    assert ModelConfig("m", "p").wanted(there) == [5]
    assert ModelConfig("m", "p", num_versions=2).wanted(there) == [3, 5]
    assert ModelConfig("m", "p", "all").wanted(there) == there
    assert ModelConfig("m", "p", "specific", versions=(2, 9)).wanted(there) == [2]
    assert ModelConfig("m", "p", traffic=TrafficSplit({2: 10, 9: 1})).wanted(there) == [2, 5]
    assert ModelConfig("m", "p", traffic=TrafficSplit({5: 10})).wanted(there) == [3, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("models: {}", "no model"),
        ("model: {}", "'model'"),
        ("models: [a]", "key: value"),
        ("models:\n  a: {}", "no base_path"),
        ("models:\n  a: {base_path: x, version: 1}", "'version'"),
        ("models:\n  a: {base_path: x, versions: newest}", "'newest'"),
        ("models:\n  a: {base_path: x, versions: latest 0}", "at least one"),
        ("models:\n  a: {base_path: x, versions: []}", "none is named"),
        ("models:\n  a: {base_path: x, versions: [one]}", "a number is wanted"),
        ("models:\n  a: {base_path: x, labels: {a-b: 1}}", "no label"),
        ("models:\n  a: {base_path: x, batching: {max_batch: 1}}", "'max_batch'"),
        ("models:\n  a: {base_path: x, traffic: {canary: 10}}", "no version or label"),
        ("models:\n  a: {base_path: x, traffic: {1: 110}}", "110 percent"),
        ("models:\n  a/b: {base_path: x}", "no name for a model"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        read_models(tmp_path / "models.yaml")
    assert words in str(error.value)
    assert "models.yaml" in str(error.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_models(tmp_path / "none.yaml")
