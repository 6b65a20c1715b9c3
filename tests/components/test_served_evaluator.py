"""ServedEvaluator: a server's log against labels that came later; and a trigger that sees when answers get worse."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from drivetrain.components import ServedEvaluator
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.pipelines.scheduler.view import StoreView
from drivetrain.pipelines.triggers import MetricDrop
from drivetrain.serving.log_files import day_folder, file_name
from drivetrain.serving.logged_rows import AnsweredRequest, RowSchema
from drivetrain.tests.components.test_served_examples import SIGNATURE, START


def write(folder: Path, scores: list[float], *, version: int = 3, minute: int = 0) -> list[str]:
    """A file as the server writes it, with these answers; gives the ids of its requests."""
    start = (START + timedelta(minutes=minute) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    requests = [
        AnsweredRequest(
            f"{version}-{minute}-{number}", start + number * 1_000_000, {"carrier": ["UA"], "hour": [7]}, 1,
            {"late": np.array([score], np.float32)}, 0,
        )
        for number, score in enumerate(scores)
    ]  # fmt: skip
    path = day_folder(folder / "flights", version, start) / file_name("predict", start)
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = RowSchema("flights", version, f"digest-{version}", "predict", SIGNATURE, hashed=(), key=b"k" * 16)
    pq.write_table(schema.whole([schema.table(requests)]), path)
    return [request.request_id for request in requests]


def write_labels(path: Path, labels: dict[str, int]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("request_id", "was_late"), *labels.items()])


def test_metrics_are_those_of_a_library_that_is_not_ours(tmp_path: Path) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    draw = random.Random(7)
    scores = {version: [draw.random() for _ in range(400)] for version in (3, 4)}
    ids = {version: write(tmp_path / "log", scores[version], version=version) for version in scores}
    truth = {
        name: int(draw.random() < (score if version == 3 else 1 - score))
        for version in scores
        for name, score in zip(ids[version], scores[version], strict=True)
        if draw.random() < 0.75
    }
    write_labels(tmp_path / "labels.csv", truth)
    log, labels = f"{tmp_path}/log/flights/*/*/*.parquet", str(tmp_path / "labels.csv")

    def expected(*versions: int) -> float:
        pairs = [
            (truth[name], score)
            for v in versions
            for name, score in zip(ids[v], scores[v], strict=True)
            if name in truth
        ]
        return float(metrics.roc_auc_score(*zip(*[(label, np.float32(score)) for label, score in pairs], strict=True)))

    every = ServedEvaluator(log, labels, label="was_late")
    assert every.metrics["auc"] == pytest.approx(expected(3, 4), abs=1e-6)
    assert not every.blessed
    assert every.summary.startswith(f"{len(truth)} of 800 rows of flights have a label, ")
    table = pq.read_table(every.content / "metrics.parquet").to_pylist()
    by_version = {row["slice"]: row["value"] for row in table if row["metric"] == "auc"}
    assert len(by_version) == 3
    assert sorted(value for name, value in by_version.items() if name != "overall")[-1] == pytest.approx(
        expected(3), abs=1e-6
    )
    assert (every.extra / "report.html").is_file()
    only = ServedEvaluator(log, labels, label="was_late", versions=[4], metrics=["auc"])
    assert only.metrics == {"auc": pytest.approx(expected(4), abs=1e-6)}
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"versions": [9]}, "the log has no answers of version 9"),
        ({"label": "late"}, "the labels have no column 'late'"),
        ({"task": "ranking"}, "task is 'ranking'"),
        ({"until": "2026-11-01"}, "not one of the log's 800 rows"),
    )
    for parameters, message in wrong:
        with pytest.raises(InputError, match=message):
            ServedEvaluator(log, labels, **{"label": "was_late", **parameters})
    write_labels(tmp_path / "labels.csv", {"another": 1})
    with pytest.raises(InputError, match="no answer has a label"):
        ServedEvaluator(log, labels, label="was_late")


PIPELINE = """
import drivetrain as dt
from drivetrain.components import ServedEvaluator

@dt.pipeline
def watch() -> None:
    ServedEvaluator("log/flights/*/*/*.parquet", "labels.csv", label="was_late", metrics=["auc"])
"""


def test_a_trigger_sees_answers_get_worse(project: Callable[..., Path]) -> None:
    folder = project("watch", pipeline=PIPELINE)
    home = Home(folder / "root")
    trigger = MetricDrop("auc", below=0.7, pipeline="watch", made_by="ServedEvaluator")
    truth: dict[str, int] = {}
    dues, marks = [], dict[str, Any]()
    for day, share in enumerate((0.9, 0.9, 0.1, 0.1, 0.1)):  # of answers that are right
        numbers = random.Random(day)
        labels = [numbers.randrange(2) for _ in range(200)]
        scores = [label if numbers.random() < share else 1 - label for label in labels]
        names = write(folder / "log", [0.1 + 0.8 * score for score in scores], minute=day * 60)
        truth |= dict(zip(names, labels, strict=True))
        write_labels(folder / "labels.csv", truth)
        if day == 0:
            marks = {**trigger.check(StoreView(home, folder, datetime.now(UTC)), {}).marks}
        run_pipeline(home, load_pipeline(folder))
        signal = trigger.check(StoreView(home, folder, datetime.now(UTC)), marks)
        marks = {**marks, **(signal.started if signal.due else signal.marks)}
        dues.append(signal.due)
    assert dues == [False, False, True, True, True]
    home.close()
