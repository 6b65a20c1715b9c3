"""What an evaluation costs beside scikit-learn, slice by slice, on 336,776 predictions; and on many more.

    python benchmarks/evaluation.py [--repeat 3] [--millions 100]

Flights, predicted late by a function of their departure delay: all binary metrics of all rows and of 67 slices, from
Arrow batches in memory, with and without jackknife intervals. scikit-learn computes ten metrics of the same slices, and
three of them without each twentieth of the rows in turn. CPU seconds, medians of interleaved rounds. The many rows are
these over and over, in a process of its own.

The Evaluator as a pipeline runs it, of raw flights once and nine times over, by the flights example's configuration
with its slices and thresholds. Inference is what the bundle's own batch function takes, the Transform graph and the
network, over batches that are decoded already, as beside BulkInferrer. What the component takes beyond it is its own
cost: loading the bundle, decoding, slices and metrics, the verdict, files and the report. The first pass, which
compiles, does not count.
"""

from __future__ import annotations

import argparse
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from drivetrain.benchmarks.common import Bars, child, flights, interleaved, report, write
from drivetrain.components.evaluation import METRICS, EvaluationConfig
from drivetrain.components.evaluation.accumulator import MetricsAccumulator

SLICES = [["carrier"], ["month"], ["origin"], ["origin", "month"]]
ROWS = 65_536
BARS: Bars = {
    "evaluation of 67 slices: CPU s": (0.25, True),
    "scikit-learn / ours, times faster": (3.0, False),
    "with jackknife intervals: CPU s": (1.0, True),
    "scikit-learn / ours, both leaving out, times faster": (20.0, False),
    "many rows: peak GB": (1.0, True),
    "many rows / few, CPU s a row": (1.5, True),
    "Evaluator of 336,776 raw rows: its own CPU / inference": (0.3, True),
    "Evaluator of 3,030,984 raw rows: its own CPU / inference": (0.3, True),
}


def config(confidence: Any = None) -> EvaluationConfig:
    """All binary metrics that have no options."""
    names = []
    for name, definitions in METRICS.items():
        for definition in definitions:
            options = inspect.signature(definition.build).parameters.values()
            if "binary" in definition.tasks and all(option.default is not option.empty for option in options):
                names.append(name)
    return EvaluationConfig("late", "p", slices=SLICES, metrics=names, confidence=confidence)


@cache
def scored() -> pa.Table:
    """The predictions as `Scores` gives them."""
    table = flights()
    delay = np.nan_to_num(table["dep_delay"].to_numpy(zero_copy_only=False).astype(np.float64))
    noise = np.random.default_rng(0).normal(size=len(delay))
    columns: dict[str, Any] = {
        "label": (np.nan_to_num(table["arr_delay"].to_numpy(zero_copy_only=False).astype(np.float64)) > 15).astype(
            np.int64
        ),
        "candidate": 1 / (1 + np.exp(-(delay / 20 - 1 + noise / 4))),
    }
    return pa.table(columns | {f"slice:{name}": table[name] for name in ("carrier", "month", "origin")})


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """So many rows, over and over."""
    table = scored()
    while rows > 0:
        part = table.slice(0, rows)
        yield from part.to_batches(max_chunksize=ROWS)
        rows -= len(part)


def ours(judged: EvaluationConfig, rows: int) -> Any:
    """The metrics of every slice."""
    accumulator = MetricsAccumulator(judged)
    for batch in batches(rows):
        accumulator.add_batch(batch)
    return accumulator.result()


def groups() -> Iterator[tuple[Any, Any]]:
    """Labels and predictions of all rows, and of each slice."""
    frame = scored().to_pandas()
    yield frame.label.to_numpy(), frame.candidate.to_numpy()
    for columns in SLICES:
        for _, rows in frame.groupby([f"slice:{name}" for name in columns]):
            yield rows.label.to_numpy(), rows.candidate.to_numpy()


def scikit_learn() -> None:
    """Ten metrics of each slice."""
    from sklearn import metrics

    for label, score in groups():
        called = score > 0.5
        of_scores = (metrics.average_precision_score, metrics.log_loss, metrics.brier_score_loss)
        of_calls = (metrics.accuracy_score, metrics.f1_score, metrics.matthews_corrcoef, metrics.cohen_kappa_score)
        if len(np.unique(label)) > 1:
            metrics.roc_auc_score(label, score)
        for measure in of_scores:
            measure(label, score, **({"labels": [0, 1]} if measure is metrics.log_loss else {}))
        for measure in of_calls:
            measure(label, called)
        metrics.precision_score(label, called, zero_division=0)
        metrics.recall_score(label, called, zero_division=0)


def scikit_learn_leaving_out() -> None:
    """Three metrics of each slice without each twentieth of its rows."""
    from sklearn import metrics

    for label, score in groups():
        bucket = np.random.default_rng(0).integers(0, 20, len(label))
        for index in range(20):
            some = bucket != index
            if len(np.unique(label[some])) > 1:
                metrics.roc_auc_score(label[some], score[some])
            metrics.log_loss(label[some], score[some], labels=[0, 1])
            metrics.precision_score(label[some], score[some] > 0.5, zero_division=0)


def many(rows: int) -> None:
    """Print CPU seconds and peak bytes of an evaluation."""
    import resource

    scored()
    before = resource.getrusage(resource.RUSAGE_SELF)
    ours(config(), rows)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(cpu, after.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def evaluator(folder: Path, times: int, repeat: int) -> dict[str, float]:
    """The Evaluator on raw flights, so many times over, against the bundle alone."""
    from drivetrain import data
    from drivetrain.benchmarks.engine import features, served
    from drivetrain.components import Evaluator
    from drivetrain.engine import BundleFn, analyze
    from drivetrain.examples.flights.evaluation import config as of_flights
    from drivetrain.metadata import Examples, Model

    judged: Any = replace(of_flights, prediction="p")  # as the benchmark's bundle calls it
    source = data.open_files([write(flights(), folder / f"{times}.parquet", times)])
    local = data.executor("local")
    if not (folder / "graph").exists():
        analyze(features, source, local).save(folder / "graph")
    served(folder)
    model, examples = Model(folder / "trained"), Examples.new()
    if not model.content.exists():
        shutil.copytree(folder / "model", model.content)
    local.map(source, None, data.sinks(examples.content, ["eval"])).write(examples.content)
    fn = BundleFn(model.content, "evaluate")
    fn.setup()
    inputs = list(served(folder).signatures["evaluate"].inputs)
    columns = data.open_examples(examples.content, "eval", inputs).with_dictionaries()
    batches = [batch for shard in range(len(columns.shards)) for batch in columns.read(shard)]

    def component() -> None:
        evaluation = Evaluator(examples, model, config=judged)
        shutil.rmtree(evaluation.path)

    timings = interleaved({"alone": lambda: [fn(batch) for batch in batches], "component": component}, repeat)
    alone, whole = timings["alone"][0], timings["component"][0]
    name = f"Evaluator of {source.rows:,} raw rows"
    return {
        f"{name}: CPU s": whole,
        f"{name}: inference, CPU s": alone,
        f"{name}: its own CPU / inference": whole / alone - 1,
    }


def main() -> None:
    """Print the figures, each with its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--millions", type=int, default=100, help="rows of the large evaluation; 0 leaves it out")
    options = parser.parse_args()
    few = len(scored())
    assert len(ours(config(), few)["slices"]) == 68
    works: dict[str, Callable[[], object]] = {
        "evaluation of 67 slices": partial(ours, config(), few),
        "with jackknife intervals": partial(ours, config("jackknife"), few),
        "with DeLong's intervals": partial(ours, config("delong"), few),
        "scikit-learn, ten metrics": scikit_learn,
        "scikit-learn, three leaving out": scikit_learn_leaving_out,
    }
    timings = interleaved(works, options.repeat)
    figures = {f"{name}: CPU s": cpu for name, (cpu, _) in timings.items()}
    cost = {name: cpu for name, (cpu, _) in timings.items()}
    figures["scikit-learn / ours, times faster"] = cost["scikit-learn, ten metrics"] / cost["evaluation of 67 slices"]
    leaving_out = cost["scikit-learn, three leaving out"] / cost["with jackknife intervals"]
    figures["scikit-learn / ours, both leaving out, times faster"] = leaving_out
    if options.millions:
        script = f"from drivetrain.benchmarks import evaluation; evaluation.many({options.millions * 1_000_000})"
        cpu, peak = child(sys.executable, script)
        a_row = cost["evaluation of 67 slices"] / few
        figures["many rows: CPU s"] = cpu
        figures["many rows: peak GB"] = peak / 1e9
        figures["many rows / few, CPU s a row"] = cpu / (options.millions * 1e6) / a_row
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        for times in (1, 9):
            figures |= evaluator(Path(folder), times, options.repeat)
    report("evaluation", figures, BARS)


if __name__ == "__main__":
    main()
