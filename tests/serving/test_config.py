"""The file of models: what it holds, and mistakes at their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.serving.batching import BatchingOptions
from drivetrain.serving.config import ModelConfig, read_models
from drivetrain.serving.rollout import Guard, RampStep, Rollout
from drivetrain.serving.shadow import ShadowTraffic
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
  ramped:
    base_path: ramped
    labels: {canary: 4}
    rollout:
      steps: [{share: 1, minutes: 10}, {share: 100}]
      guard: {p99_ratio: null, min_requests: 50, drift: 0.5}
      version: canary
      state: state
    shadow: {version: 4, sample: 0.5, max_queue: 9}
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
        ModelConfig(
            "ramped",
            str(tmp_path / "ramped"),
            labels={"canary": 4},
            rollout=Rollout(
                (RampStep(1, 10), RampStep(100)),
                str(tmp_path / "state"),
                4,
                Guard(p99_ratio=None, min_requests=50, drift=0.5),
            ),
            shadow=ShadowTraffic(4, 0.5, max_queue=9),
        ),
    ]


def test_versions_wanted() -> None:
    there = [1, 2, 3, 5]
    assert ModelConfig("m", "p").wanted(there) == [5]
    assert ModelConfig("m", "p", num_versions=2).wanted(there) == [3, 5]
    assert ModelConfig("m", "p", "all").wanted(there) == there
    assert ModelConfig("m", "p", "specific", versions=(2, 9)).wanted(there) == [2]
    assert ModelConfig("m", "p", traffic=TrafficSplit({2: 10, 9: 1})).wanted(there) == [2, 5]
    assert ModelConfig("m", "p", traffic=TrafficSplit({5: 10})).wanted(there) == [3, 5]
    assert ModelConfig("m", "p", rollout=Rollout((RampStep(10),), "s")).wanted(there, {2, 4}) == [2, 5]
    assert ModelConfig("m", "p", rollout=Rollout((RampStep(10),), "s", 5)).wanted(there) == [3, 5]
    assert ModelConfig("m", "p", shadow=ShadowTraffic(5)).wanted(there) == [3, 5]


@pytest.mark.parametrize("address", [".", "./", "../flights", "sub/..", "../flights/"])
def test_a_model_is_called_as_its_folder_however_that_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    pytest.importorskip("httptools")
    served: list[ModelConfig] = []
    monkeypatch.setattr("drivetrain.serving.server.run", lambda configs, *_: served.extend(configs))
    (tmp_path / "flights" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "flights")
    result = CliRunner().invoke(cli, ["serve", address])
    assert result.exit_code == 0, result.output
    assert [config.name for config in served] == ["flights"]


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
        ("models:\n  a: {base_path: x, labels: {a-b: 1}}", "is not a label"),
        ("models:\n  a: {base_path: x, batching: {max_batch: 1}}", "'max_batch'"),
        ("models:\n  a: {base_path: x, traffic: {canary: 10}}", "no version or label"),
        ("models:\n  a: {base_path: x, traffic: {1: 110}}", "110 percent"),
        ("models:\n  a/b: {base_path: x}", "not a valid name for a model"),
        ("models:\n  ..: {base_path: x}", "not a valid name for a model"),
        ("models:\n  a:\n    base_path: x\n    rollout: {steps: []}", "models.yaml:4"),
        ("models:\n  a:\n    base_path: x\n    rollout:\n      steps:\n      - {share: 110}", "models.yaml:6"),
        ("models:\n  a: {base_path: x, rollout: {steps: [{share: 9}], version: canary}}", "no version or label"),
        ("models:\n  a: {base_path: x, rollout: {steps: [{share: 9}], guard: {psi: 1}}}", "'psi'"),
        ("models:\n  a: {base_path: x, rollout: {steps: [{share: 9}], guard: {drift: 0}}}", "a number above 0"),
        ("models:\n  a: {base_path: x, traffic: {1: 5}, rollout: {steps: [{share: 9}]}}", "keep one"),
        ("models:\n  a: {base_path: x, shadow: {}}", "names no version"),
        ("models:\n  a: {base_path: x, shadow: {version: 1, sample: 2}}", "a sample of 2"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "models.yaml").write_text(text)
    with pytest.raises(InputError) as error:
        read_models(tmp_path / "models.yaml")
    assert words in str(error.value)
    assert "models.yaml" in str(error.value)


TENSORFLOW = """
# as in TensorFlow Serving's documentation
model_config_list {
  config {
    name: 'my_first_model'
    base_path: '/tmp/my_first_model/'
    model_platform: 'tensorflow'
  }
  config {
    name: 'my_second_model'
    base_path: 'second'
    model_platform: 'tensorflow'
    model_version_policy {
      specific {
        versions: 42
        versions: 43
      }
    }
    version_labels {
      key: 'stable'
      value: 43
    }
  }
}
"""


def test_a_file_of_tensorflow_serving(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    path = tmp_path / "models.config"
    path.write_text(TENSORFLOW)
    second = ModelConfig(
        "my_second_model", str(tmp_path / "second"), "specific", versions=(42, 43), labels={"stable": 43}
    )
    assert read_models(path) == [ModelConfig("my_first_model", "/tmp/my_first_model"), second]
    for text, words in (
        ("model_config_list {}", "has no model"),
        ("model_config_list { config { name: 'a' } }", "no base_path"),
        ("model_config_list { config { name: 'a/b' base_path: 'x' } }", "not a valid name for a model"),
        (TENSORFLOW.replace("my_second_model", "my_first_model"), "configured twice"),
        (
            TENSORFLOW.replace("model_platform", "logging_config"),
            r'models.config:7:5 .*no field named "logging_config"',
        ),
        (TENSORFLOW[:-3], "models.config:2"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_models(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_models(tmp_path / "none.yaml")
