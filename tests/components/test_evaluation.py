"""An evaluation from Parquet to files, with a small model in a bundle's place; its configuration and thresholds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Threshold, read_slices, read_validation
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.run import evaluate, write
from drivetrain.components.evaluation.scoring import Scores
from drivetrain.components.evaluation.validation import matches, relative_change, summary, validate
from drivetrain.data import BatchFn, LocalExecutor, Source, executor, open_parquet
from drivetrain.digest import digest_tree
from sklearn.metrics import roc_auc_score

ROWS = 5_000


@dataclass
class Guess:
    """A model of one line: the delay, squashed; what a bundle's batch function gives."""

    slope: float
    label: bool = True

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        delay = batch.column("delay").to_numpy()
        columns = {"probability": (1 / (1 + np.exp(-self.slope * delay))).astype(np.float32)}
        if self.label:
            columns["late"] = batch.column("late").cast(pa.float32())
        return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


@pytest.fixture
def source(tmp_path: Path) -> Source:
    rng = np.random.default_rng(7)
    delay = rng.normal(size=ROWS)
    table = pa.table(
        {
            "delay": delay,
            "late": (rng.random(ROWS) < 1 / (1 + np.exp(-2 * delay))).astype(np.int64),
            "carrier": pa.array(["AA", "UA", None]).take(pa.array(rng.integers(0, 3, ROWS))),
            "month": rng.integers(1, 4, ROWS),
            "unused": np.arange(ROWS),
        }
    )
    pq.write_table(table, tmp_path / "part-00000.parquet", row_group_size=700)
    return open_parquet([tmp_path / "part-00000.parquet"])


def config(*thresholds: Any, **options: Any) -> EvaluationConfig:
    given: dict[str, Any] = {"label": "late", "prediction": "probability", "slices": [[], ["carrier"], ["month"]]}
    return EvaluationConfig(**given | options, thresholds=thresholds)


def run(
    source: Source,
    judged: EvaluationConfig,
    model: BatchFn | None = None,
    baseline: BatchFn | None = None,
    **options: Any,
) -> dict[str, Any]:
    return evaluate(source, judged, LocalExecutor(threads=2), model or Guess(2.0), baseline, **options)


def folders(tmp_path: Path, name: str) -> tuple[Path, Path]:
    content, extra = tmp_path / name / "content", tmp_path / name / "extra"
    content.mkdir(parents=True)
    extra.mkdir()
    return content, extra


def test_metrics_thresholds_plots_and_report_are_written(source: Source, tmp_path: Path) -> None:
    judged = config(
        Threshold("auc", lower=0.8),
        Threshold("auc", lower=0.8, change_absolute=-0.01, slice=["carrier"]),
        Threshold("log_loss", upper=0.1, slice={"month": 2}),
    )
    found = run(source, judged, baseline=Guess(1.0, label=False), inputs={"delay": "the model", "late": "the model"})
    content, extra = folders(tmp_path, "a")
    write(found, content, extra)

    table = pq.read_table(content / "metrics.parquet").to_pylist()
    raw = pq.read_table(tmp_path / "part-00000.parquet").to_pandas()
    score = 1 / (1 + np.exp(-2.0 * raw.delay))
    for key, mine in (
        ("[]", raw.late >= 0),
        ('[["carrier",null]]', raw.carrier.isna()),
        ('[["month",2]]', raw.month == 2),
    ):
        rows = {row["metric"]: row for row in table if row["slice_key"] == key}
        assert rows["auc"]["n"] == rows["example_count"]["value"] == mine.sum()
        expected = roc_auc_score(raw.late[mine], score[mine].astype(np.float32))
        assert rows["auc"]["value"] == pytest.approx(expected, rel=1e-12)
        assert rows["auc"]["change"] == 0  # the slope does not change the order
        assert rows["log_loss"]["value"] < rows["log_loss"]["baseline"]
    assert {row["slice"] for row in table} >= {"overall", "carrier=AA", "carrier=(missing)", "month=3"}

    slices = read_slices(content)
    assert [item.title for item in slices[:3]] == ["overall", "carrier=AA", "carrier=UA"]
    assert slices[3].pairs == (("carrier", None),)
    assert slices[3].n == raw.carrier.isna().sum()
    assert slices[3].values["auc"] == slices[3].baseline["auc"]

    verdict = read_validation(content)
    assert verdict["blessed"] is False
    assert verdict["baseline"] == "compared"
    assert [check["passed"] for check in verdict["thresholds"]] == [True, True, True, True, False]
    assert verdict["failures"][0].startswith("log-loss of month=2 0.4")
    assert "not blessed: log-loss of month=2" in found["summary"]
    drawn = json.loads((content / "plots.json").read_text())["models"]["candidate"]
    assert drawn["roc"][0][:2] == [0, 0]
    assert drawn["roc"][-1][:2] == [1, 1]
    assert 100 < len(drawn["roc"]) <= 202
    assert sum(bucket["weight"] for bucket in drawn["calibration"]) == ROWS
    page = (extra / "report.html").read_text()
    assert page.count("<svg") > 30
    assert "not blessed" in page
    assert "carrier=(missing)" in page
    assert set(re.findall(r"\w+://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}  # a name, not a resource
    assert all(link.startswith(("#", "data:")) for link in re.findall(r"(?:src|href)\s*=\s*[\"']?([^\"'\s>]+)", page))


def test_a_folder_without_an_evaluation(tmp_path: Path) -> None:
    for read in (read_slices, read_validation):
        with pytest.raises(InputError, match="holds no evaluation"):
            read(tmp_path)


def test_two_evaluations_give_equal_content(source: Source, tmp_path: Path) -> None:
    judged = config(Threshold("auc", lower=0.8))
    prints = []
    for name, threads in (("a", 1), ("b", 2)):
        content, extra = folders(tmp_path, name)
        write(evaluate(source, judged, LocalExecutor(threads=threads), Guess(2.0)), content, extra)
        prints.append(digest_tree(content).fingerprint)
    assert prints[0] == prints[1]


@pytest.mark.beam
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Beam's own deprecations
@pytest.mark.parametrize("exact_rows", [100, 200_000])
def test_local_and_beam_give_equal_bytes(source: Source, exact_rows: int) -> None:
    judged = config(Threshold("auc", lower=0.8), exact_rows=exact_rows)
    make = partial(MetricsAccumulator, judged, True)
    scores = Scores(judged, Guess(2.0), Guess(1.0, label=False))
    states = [executor(name).combine(source, make, scores).to_bytes() for name in ("local", "beam")]
    assert states[0] == states[1]


def test_a_slice_of_an_unknown_column_names_the_known_ones(source: Source) -> None:
    with pytest.raises(InputError, match=r"\['carier'\] needs the column 'carier'.*\n.*delay, late, carrier"):
        run(source, config(slices=[["carier"]]))


def test_an_output_that_the_model_does_not_give(source: Source) -> None:
    with pytest.raises(InputError, match=r"prediction is 'logit'.*\n.*probability, late"):
        run(source, config(prediction="logit"))


def test_a_model_that_drops_rows_is_refused(source: Source) -> None:
    class Dropping(Guess):
        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return super().__call__(batch).slice(1)

    with pytest.raises(InputError, match="699 rows for 700"):
        run(source, config(), Dropping(1.0))


def test_without_a_baseline_change_bounds_do_not_apply_and_the_result_says_so(source: Source) -> None:
    found = run(source, config(Threshold("auc", lower=0.8, change_absolute=0.5), Threshold("auc", change_relative=0.5)))
    verdict = found["validation"]
    assert verdict["blessed"] is True
    assert verdict["baseline"] == "no baseline yet"
    assert [check["passed"] for check in verdict["thresholds"]] == [True, None]
    assert "≥ 0.8, change not judged, no baseline yet" in verdict["thresholds"][0]["text"]
    assert found["summary"].endswith("blessed (no baseline yet)")


def test_a_threshold_on_a_slice_without_examples_is_not_blessed_and_named(source: Source) -> None:
    found = run(source, config(Threshold("auc", lower=0.5, slice={"carrier": "ZZ"})))
    assert found["validation"]["missing_slices"] == ["carrier=ZZ"]
    assert found["summary"].endswith("not blessed: no examples in the slice carrier=ZZ, which has a threshold")


def test_no_thresholds_bless_nothing(source: Source) -> None:
    found = run(source, config())
    assert found["validation"]["blessed"] is False
    assert found["summary"].endswith("not blessed: no thresholds are configured")


def result(value: float | str, before: float | str | None = None) -> dict[str, Any]:
    metrics = {"candidate": {"auc": value}} | ({} if before is None else {"baseline": {"auc": before}})
    item = {"slice": "overall", "key": "[]", "pairs": list[Any](), "n": 4, "metrics": metrics}
    return {"rows": 4, "slices": [item], "plots": {}}


@pytest.mark.parametrize(
    ("bounds", "value", "before", "passed"),
    [
        ({"lower": 0.75}, 0.75, None, True),
        ({"lower": 0.75}, 0.7499999, None, False),
        ({"upper": 0.75}, 0.75, None, True),
        ({"upper": 0.75}, 0.7500001, None, False),
        ({"lower": 0.5, "upper": 0.6}, 0.7, None, False),
        ({"change_absolute": -0.25}, 0.75, 1.0, True),  # TFMA's threshold_change_pass_and_inclusive
        ({"change_absolute": -0.3}, 0.75, 1.0, True),  # … threshold_change_abs_rel
        ({"change_absolute": -0.2}, 0.75, 1.0, False),
        ({"change_absolute": 0.01}, 0.91, 0.90, True),  # 0.91 - 0.90 is 0.010000000000000009
        ({"change_absolute": -0.01}, 0.90, 0.91, True),  # and the other way round -0.010000000000000009
        ({"change_absolute": -0.01, "change_relative": 0.0}, 0.90, 0.905, False),  # both must hold
        ({"change_absolute": -0.01, "change_relative": -0.01}, 0.90, 0.905, True),
        ({"lower": 0.8, "change_absolute": -0.5}, 0.75, 1.0, False),
        ({"change_relative": 0.01, "direction": "lower"}, 0.4125, 0.425, True),
        ({"change_absolute": 0.0, "direction": "lower"}, 0.5, 0.4, False),
        ({"change_relative": 0.1}, 0.5, 0.0, True),  # from nothing to something is infinitely better
        ({"change_relative": 0.0}, 0.0, 0.0, True),
        ({"change_relative": 0.1}, 0.0, 0.0, False),
        ({"lower": 0.1}, "only one class among the labels", None, False),
        ({"change_absolute": -1.0}, "only one class among the labels", 0.5, False),
        ({"change_absolute": -1.0}, 0.5, "only one class among the labels", False),
        ({"change_absolute": -1.0}, "only one class among the labels", None, None),
    ],
)
def test_bounds(bounds: dict[str, Any], value: float | str, before: float | str | None, passed: bool | None) -> None:
    judged = config(Threshold("auc", **bounds))
    verdict = validate(result(value, before), judged, baseline=before is not None)
    assert verdict["thresholds"][0]["passed"] is passed
    assert verdict["blessed"] is (passed is not False)
    json.dumps(verdict, allow_nan=False)
    assert summary(result(value, before), verdict)


def test_relative_change_over_zero() -> None:
    assert relative_change(0.5, 0.0) == float("inf")
    assert relative_change(-0.5, 0.0) == float("-inf")
    assert relative_change(0.0, 0.0) == 0.0
    assert relative_change(0.6, 0.5) == pytest.approx(0.2)


def test_what_a_threshold_is_meant_for() -> None:
    every = Threshold("auc", lower=0, slice=["carrier"])
    assert matches(every, [("carrier", "AA")])
    assert matches(every, [("carrier", None)])
    assert not matches(every, [])
    assert not matches(every, [("month", 1)])
    assert not matches(every, [("carrier", "AA"), ("month", 1)])
    crossed = Threshold("auc", lower=0, slice=["month", ("carrier", "AA")])
    assert matches(crossed, [("carrier", "AA"), ("month", 1)])
    assert not matches(crossed, [("carrier", "UA"), ("month", 1)])
    assert matches(Threshold("auc", lower=0, slice={"carrier": None}), [("carrier", None)])
    assert not matches(Threshold("auc", lower=0, slice={"flag": True}), [("flag", 1)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Threshold("acu", lower=1), "unknown metric 'acu'.*\n.*auc"),
        (lambda: Threshold("auc"), "has no bound"),
        (lambda: Threshold("auc", lower=0.9, upper=0.8), "lower 0.9 is above upper 0.8"),
        (lambda: Threshold("auc", lower=float("nan")), "finite"),
        (lambda: Threshold("auc", lower="0.9"), "finite number, not '0.9'"),  # type: ignore[arg-type]
        (lambda: Threshold("calibration", change_absolute=0.1), "which way is better"),
        (lambda: Threshold("auc", lower=0, direction="up"), "'higher' or 'lower'"),  # type: ignore[arg-type]
        (lambda: Threshold("auc", lower=0, slice="carrier"), "list of columns"),
        (lambda: Threshold("auc", lower=0, slice=["carrier", "carrier"]), "'carrier' is given twice"),
        (lambda: config(metrics=["auc", "lift"]), "unknown metric 'lift'"),
        (lambda: config(metrics=["auc", "auc"]), "'auc' is given twice"),
        (lambda: config(metrics="auc"), "list of names"),
        (lambda: config(slices=["carrier"]), "a slice is a list of column names, not 'carrier'"),
        (lambda: config(slices=[["a", "b"], ["b", "a"]]), "given twice"),
        (lambda: config(slices=[["a", "a"]]), "'a' is given twice"),
        (lambda: config(Threshold("auc", lower=0), metrics=["accuracy"]), "add 'auc' to metrics"),
        (lambda: config(Threshold("auc", lower=0, slice=["dest"])), r"add \['dest'\] to slices"),
        (lambda: config(Threshold("auc", lower=0), Threshold("auc", lower=0)), "given twice"),
        (lambda: config("auc"), "is no Threshold"),
        (lambda: config(label=""), "label must name a column"),
        (lambda: config(threshold=2), r"\[0, 1\]"),
        (lambda: config(exact_rows=-1), "exact_rows"),
        (lambda: EvaluationConfig.from_json({"label": "y", "prediction": "p", "colour": 1}), "no EvaluationConfig"),
    ],
)
def test_configuration_errors(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


def test_configuration_round_trip() -> None:
    judged = config(
        Threshold("auc", lower=0.8, slice=["carrier"]),
        Threshold("log_loss", change_relative=0.1, slice={"month": None}),
    )
    assert judged.thresholds[1].direction == "lower"
    assert judged.slices == ((), ("carrier",), ("month",))
    assert EvaluationConfig.from_json(json.loads(json.dumps(judged.to_json()))) == judged
    hash(judged)


def test_importing_the_configuration_loads_no_model_library() -> None:
    code = (
        "import sys, drivetrain.components.evaluation\n"
        "heavy = {'jax', 'flax', 'optax', 'pandas', 'scipy', 'sklearn', 'apache_beam', 'great_expectations'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
