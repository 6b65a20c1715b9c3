"""What a component records of itself while it runs: metrics, and their curves."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import current
from drivetrain.pipelines.project.context import LaunchContext
from drivetrain.pipelines.project.metrics import Metrics
from hypothesis import given, settings
from hypothesis import strategies as st


def recorded(metrics: Metrics) -> dict[str, Any]:
    return cast("dict[str, Any]", metrics.properties)


def test_the_last_value_of_a_metric_counts_and_its_steps_are_kept() -> None:
    launch = LaunchContext()
    assert launch.metrics.properties == {}
    launch.metric("loss", 3, step=10)
    launch.metric("rows", np.int64(7))
    launch.metric("loss", np.float32(0.5), step=20)
    assert launch.metrics.properties == {
        "metrics": {"loss": 0.5, "rows": 7.0},
        "metric_steps": {"loss": [[10, 3.0], [20, 0.5]]},
    }


@pytest.mark.engine
def test_scalars_of_jax_are_numbers() -> None:
    import jax.numpy as jnp

    launch = LaunchContext()
    launch.metric("loss", jnp.float32(0.25))
    assert recorded(launch.metrics)["metrics"] == {"loss": 0.25}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -np.inf, np.float32("nan")])
def test_what_is_not_finite_is_recorded_as_undefined(value: float) -> None:
    launch = LaunchContext()
    launch.metric("loss", 1.0, step=1)
    launch.metric("loss", value, step=2)
    assert launch.metrics.properties == {"metrics": {"loss": None}, "metric_steps": {"loss": [[1, 1.0], [2, None]]}}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("loss", "0.5", "the metric 'loss' is '0.5', not a number"),
        ("loss", None, "the metric 'loss' is None, not a number"),
        ("loss", np.zeros(3), r"the metric 'loss' is array\(\[0., 0., 0.\]\), not a number"),
        ("", 1.0, "a name of a metric has 1 to 255 characters, not 0"),
        ("x" * 256, 1.0, "a name of a metric has 1 to 255 characters, not 256"),
        (3, 1.0, "a name of a metric must be text, not 3"),
    ],
)
def test_what_is_no_metric_is_refused(name: Any, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        LaunchContext().metric(name, value)


def test_a_step_in_the_name_is_refused_before_the_store_is_full_of_them() -> None:
    launch = LaunchContext()
    for step in range(1000):
        launch.metric(f"loss at {step}", step)
    launch.metric("loss at 3", 4)
    with pytest.raises(InputError, match="more than 1,000") as refused:
        launch.metric("loss at 1000", 1)
    assert refused.value.fix == "say the step by step=, not in the name"


@settings(max_examples=25)
@given(st.one_of(st.integers(1, 5_000), st.sampled_from([1_000, 1_001, 1_002, 2_000, 2_001, 4_000])))
def test_a_long_curve_keeps_an_even_selection_and_its_end(length: int) -> None:
    metrics = Metrics()
    for step in range(length):
        metrics.record("loss", step / 2, step)
    points = recorded(metrics)["metric_steps"]["loss"]
    steps = [step for step, _ in points]
    assert all(value == step / 2 for step, value in points)
    assert steps[0] == 0
    assert steps[-1] == length - 1
    assert len(points) <= 1000
    assert length <= 1000 or len(points) >= 500
    assert len(points) == length or len(set(np.diff(steps[:-1]))) == 1
    assert recorded(metrics)["metrics"] == {"loss": (length - 1) / 2}


def test_threads_lose_nothing() -> None:
    metrics = Metrics()
    start = threading.Barrier(4)

    def work(number: int) -> None:
        start.wait()
        for step in range(200):
            metrics.record(f"loss {number}", step, step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: len(points) for name, points in recorded(metrics)["metric_steps"].items()} == {
        f"loss {number}": 200 for number in range(4)
    }


def test_a_plain_call_records_nowhere() -> None:
    current().metric("loss", 0.5, step=1)
    assert current().metrics.properties == {}


def test_values_are_written_as_they_come_and_read_again(tmp_path: Path) -> None:
    metrics, path = Metrics(), tmp_path / "work" / "metrics.jsonl"
    with metrics.written_to(path):
        assert not path.parent.exists()  # most components measure nothing
        for step in range(1500):
            metrics.record("loss", step / 2, step)
        metrics.record("diverged", float("inf"))
        with path.open("a") as file:
            file.write('["loss", 7')  # a line that is being written
        assert recorded(Metrics.read(path)) == recorded(metrics)
    assert not path.exists()
    metrics.record("loss", 1, 1500)  # by a thread that outlives the component
    assert Metrics.read(path).properties == {}


@pytest.mark.parametrize(
    "line",
    [
        b"xx", b"\xff\xfe", b"\0" * 50, b"{}", b"5", b"null", b'["loss"]', b'["loss", "x", 1]', b'["loss", 1, "x"]',
        b'["loss", 1, 1e400]', b'["loss", 1, NaN]', b"[5, 1, 1]", b"[" * 100_000, b'["loss", ' + b"9" * 5000 + b", 1]",
        b'["\\ud800", 1, 1]',
    ],
)  # fmt: skip
def test_a_damaged_line_is_left_out(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'["loss", 3.0, 1]\n' + line + b'\n["loss", 2.0, 2]\n')
    assert Metrics.read(path).properties["metrics"]["loss"] == 2.0  # type: ignore[index]
    assert Metrics.read(path).properties["metric_steps"]["loss"] == [[1, 3.0], [2, 2.0]]  # type: ignore[index]


@pytest.mark.parametrize("step", [math.nan, math.inf, "x", 1j])
def test_a_step_that_is_no_number_is_refused_and_nothing_is_recorded(step: Any) -> None:
    metrics = Metrics()
    with pytest.raises(InputError, match="the step of the metric 'loss' is"):
        metrics.record("loss", 1.0, step)
    assert metrics.properties == {}


def test_an_integer_that_no_float_holds_is_undefined() -> None:
    metrics = Metrics()
    metrics.record("loss", 10**400)
    assert metrics.properties == {"metrics": {"loss": None}}


def test_a_full_disk_costs_the_file_alone(tmp_path: Path) -> None:
    metrics, path = Metrics(), tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with metrics.written_to(path):
        metrics.record("loss", 1, 1)
        metrics.record("loss", 2, 2)
    assert recorded(metrics)["metric_steps"] == {"loss": [[1, 1.0], [2, 2.0]]}
