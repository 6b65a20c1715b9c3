"""An evaluation from Parquet to files, with a small model in a bundle's place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Metric, Threshold, metric, read_slices, read_validation
from drivetrain.components.evaluation.accumulator import MetricsAccumulator
from drivetrain.components.evaluation.outputs import ONLY
from drivetrain.components.evaluation.run import evaluate, write
from drivetrain.components.evaluation.scoring import Scores
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


def calls() -> Metric:
    """A user's: how many predictions are above one half."""
    return Metric.reduce(
        "Calls",
        lambda: {"calls": 0},
        lambda state, rows: {"calls": state["calls"] + int((rows.prediction > 0.5).sum())},
        lambda left, right: {"calls": left["calls"] + right["calls"]},
        lambda state: float(state["calls"]),
    )


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
    evaluation = run(
        source, judged, baseline=Guess(1.0, label=False), inputs={"delay": "the model", "late": "the model"}
    )
    content, extra = folders(tmp_path, "a")
    write({ONLY: evaluation}, content, extra)

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
    assert "not blessed: log-loss of month=2" in evaluation["summary"]
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


def test_intervals_are_written_and_read(source: Source, tmp_path: Path) -> None:
    judged = config(Threshold("auc", lower=0.5, judge="strict"), confidence="jackknife")
    content, extra = folders(tmp_path, "a")
    write({ONLY: run(source, judged, baseline=Guess(0.1, label=False))}, content, extra)
    overall = read_slices(content)[0]
    for name in ("auc", "log_loss"):
        low, high = overall.intervals[name]
        assert low < float(overall.values[name] or 0) < high
        assert high - low < 0.1
    low, high = overall.change_intervals["log_loss"]
    assert low < float(overall.values["log_loss"] or 0) - float(overall.baseline["log_loss"] or 0) < high < 0
    assert "example_count" not in overall.intervals
    assert re.search(r"0\.8\d+.{0,60}\(0\.8\d+ to 0\.8\d+", (extra / "report.html").read_text())
    assert read_validation(content)["thresholds"][0]["interval"] == list(overall.intervals["auc"])


def test_a_folder_without_an_evaluation(tmp_path: Path) -> None:
    for read in (read_slices, read_validation):
        with pytest.raises(InputError, match="holds no evaluation"):
            read(tmp_path)


@pytest.mark.parametrize("confidence", [None, "bootstrap"])
def test_two_evaluations_give_equal_content(confidence: Any, source: Source, tmp_path: Path) -> None:
    judged = config(Threshold("auc", lower=0.8), confidence=confidence)
    prints = []
    for name, threads in (("a", 1), ("b", 2)):
        content, extra = folders(tmp_path, name)
        write({ONLY: evaluate(source, judged, LocalExecutor(threads=threads), Guess(2.0))}, content, extra)
        prints.append(digest_tree(content).fingerprint)
    assert prints[0] == prints[1]


@pytest.mark.beam
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Beam's own deprecations
@pytest.mark.parametrize("exact_rows", [100, 200_000])
@pytest.mark.parametrize("metrics", [None, ["auc", metric("precision", threshold=0.3), "flip_rate", calls]])
def test_local_and_beam_give_equal_bytes(source: Source, exact_rows: int, metrics: Any) -> None:
    judged = config(Threshold("auc", lower=0.8), exact_rows=exact_rows, metrics=metrics, confidence="jackknife")
    make = partial(MetricsAccumulator, judged, True)
    scores = Scores(judged, Guess(2.0), Guess(1.0, label=False))
    states = [executor(name).combine(source, make, scores).to_bytes() for name in ("local", "beam")]
    assert states[0] == states[1]


def test_a_slice_of_an_unknown_column_names_the_close_one(source: Source) -> None:
    with pytest.raises(InputError, match=r"\['carier'\] needs the column 'carier'.*\n.*did you mean 'carrier'"):
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
    evaluation = run(
        source, config(Threshold("auc", lower=0.8, change_absolute=0.5), Threshold("auc", change_relative=0.5))
    )
    verdict = evaluation["validation"]
    assert verdict["blessed"] is True
    assert verdict["baseline"] == "no baseline yet"
    assert [check["passed"] for check in verdict["thresholds"]] == [True, None]
    assert "≥ 0.8, change not judged, no baseline yet" in verdict["thresholds"][0]["text"]
    assert evaluation["summary"].endswith("blessed (no baseline yet)")


def test_a_threshold_on_a_slice_without_examples_is_not_blessed_and_named(source: Source) -> None:
    evaluation = run(source, config(Threshold("auc", lower=0.5, slice={"carrier": "ZZ"})))
    assert evaluation["validation"]["missing_slices"] == ["carrier=ZZ"]
    assert evaluation["summary"].endswith("not blessed: no examples in the slice carrier=ZZ, which has a threshold")


def test_no_thresholds_bless_nothing(source: Source) -> None:
    evaluation = run(source, config())
    assert evaluation["validation"]["blessed"] is False
    assert evaluation["summary"].endswith("not blessed: no thresholds are configured")


def test_small_slices_are_withheld(tmp_path: Path) -> None:
    """Nothing that is written names one, but a threshold of the user's that does."""
    rng = np.random.default_rng(3)
    carrier = ["AA"] * 60 + ["Quxair"] * 5 + ["Zorbair"] * 2
    table = pa.table({"delay": rng.normal(size=67), "late": rng.integers(0, 2, 67), "carrier": carrier})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = open_parquet([tmp_path / "rows.parquet"])
    judged = config(Threshold("auc", lower=0.0, slice=["carrier"]), slices=[["carrier"]], min_examples=6)
    evaluation = run(rows, judged)
    assert evaluation["validation"]["blessed"]
    assert evaluation["metrics"]["withheld"] == [{"columns": ["carrier"], "slices": 2, "rows": 7}]
    content, extra = folders(tmp_path, "a")
    write({ONLY: evaluation}, content, extra)
    for path in (*content.iterdir(), *extra.iterdir()):
        assert not re.search(b"Quxair|Zorbair", path.read_bytes()), path
    assert "Quxair" not in repr(evaluation)
    assert [item.title for item in read_slices(content)] == ["overall", "carrier=AA"]
    verdict = read_validation(content)
    assert verdict["withheld"][0]["rows"] == 7
    assert verdict["withheld_thresholds"][0]["text"].endswith("1 slice judged, 2 withheld, with fewer than 6 examples")
    page = (extra / "report.html").read_text()
    assert "Slices with fewer than 6 examples are not shown." in page
    alone = run(rows, config(slices=[["carrier"]], min_examples=68))
    assert [item["slice"] for item in alone["metrics"]["slices"]] == ["overall"]
    kept = run(rows, config(slices=[["carrier"]], min_examples=2))
    assert len(kept["metrics"]["slices"]) == 4
    assert kept["metrics"]["withheld"] == []


@pytest.mark.parametrize("exact_rows", [0, 10_000])
def test_a_column_of_lists_slices_by_each_value(tmp_path: Path, exact_rows: int) -> None:
    rng = np.random.default_rng(4)
    tags = [rng.choice(["x", "y"], size).tolist() for size in rng.integers(0, 4, 900)]
    table = pa.table({"delay": rng.normal(size=900), "late": rng.integers(0, 2, 900), "tags": tags})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=200)
    judged = config(Threshold("auc", lower=0, slice={"tags": "x"}), slices=[["tags"]], exact_rows=exact_rows)
    inputs = {"delay": "the model", "late": "the model"}  # so that texts come as dictionaries
    evaluation = run(open_parquet([tmp_path / "rows.parquet"]), judged, inputs=inputs)
    slices = {item["slice"]: item for item in evaluation["metrics"]["slices"]}
    score, late = 1 / (1 + np.exp(-2.0 * table["delay"].to_numpy())), table["late"].to_numpy()
    expected = {f"tags={tag}": np.array([tag in each for each in tags]) for tag in "xy"}
    expected |= {"overall": np.ones(900, dtype=np.bool_), "tags=(missing)": np.array([not each for each in tags])}
    assert {name: item["n"] for name, item in slices.items()} == {name: mine.sum() for name, mine in expected.items()}
    for name, mine in expected.items():
        auc = roc_auc_score(late[mine], score[mine].astype(np.float32))
        assert slices[name]["metrics"]["candidate"]["auc"] == pytest.approx(auc, rel=1e-3 if not exact_rows else 1e-12)
    assert [check["slice"] for check in evaluation["validation"]["thresholds"]] == ["tags=x"]
