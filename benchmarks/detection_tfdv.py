"""What TFDV finds of the corruptions of `detection.py`; runs where TFDV is installed, not in our environment.

    PYTHON detection_tfdv.py FOLDER   (as `detection.py --tfdv PYTHON` calls it)

Every folder in FOLDER is a data set with the tables of `detection.Trial` as Arrow files; the answers go to
FOLDER/answers.json. Configuration: statistics with default options, `infer_schema` with its defaults. For drift, all
texts have an `infinity_norm` and all numbers a `jensen_shannon_divergence`, each with twice the largest number that it
has on the clean spans put aside for that (the procedure that our bounds have), and the number of examples may change by
5 %.
"""
# mypy: ignore-errors

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import schema_pb2


def statistics(path):
    """Of an Arrow file; rows as TFDV's own readers give them, lists of one value, texts as bytes."""
    table = pa.ipc.open_file(path).read_all()
    columns = []
    for column in table.columns:
        values = column.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of a table without rows
            values = pa.array([], column.type)
        if pa.types.is_string(values.type):
            values = values.view(pa.binary())
        valid = np.asarray(values.is_valid())
        ends = np.concatenate([[0], np.cumsum(valid)])
        offsets = pa.array(ends, pa.int64(), mask=np.concatenate([~valid, [False]]))
        columns.append(pa.LargeListArray.from_arrays(offsets, values.drop_null()))
    batch = pa.RecordBatch.from_arrays(columns, table.column_names)
    return stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions())


def anomalous(current, schema, previous=None):
    """Names of the columns with an anomaly; "" stands for the data set."""
    anomalies = tfdv.validate_statistics(current, schema, previous_statistics=previous)
    names = {name.strip("'") for name in anomalies.anomaly_info}
    whole = anomalies.HasField("dataset_anomaly_info") or anomalies.data_missing
    return names | ({""} if whole else set())


def with_drift(schema, reference, spans, factor, rows):
    """The schema with comparators."""
    bounded = schema_pb2.Schema()
    bounded.CopyFrom(schema)
    for feature in bounded.feature:
        comparator = feature.drift_comparator
        text = feature.type == schema_pb2.BYTES
        (comparator.infinity_norm if text else comparator.jensen_shannon_divergence).threshold = 0.0
    largest = {}
    for span in spans:
        drift = tfdv.validate_statistics(span, bounded, previous_statistics=reference).drift_skew_info
        for info in drift:
            name = info.path.step[0]
            for measured in info.drift_measurements:
                largest[name] = max(largest.get(name, 0.0), measured.value)
    for feature in bounded.feature:
        comparator = feature.drift_comparator
        text = feature.type == schema_pb2.BYTES
        bound = factor * largest.get(feature.name, 0.0)
        (comparator.infinity_norm if text else comparator.jensen_shannon_divergence).threshold = bound
    counted = bounded.dataset_constraints.num_examples_drift_comparator
    counted.min_fraction_threshold, counted.max_fraction_threshold = rows
    return bounded


def answers(folder):
    """Who finds the cases of a data set, "a" (the default schema) and "c" (with drift); and the false alarms."""
    trial = json.loads((folder / "trial.json").read_text("utf-8"))

    def of(name):
        return statistics(str(folder / f"{name}.arrow"))

    reference = of("reference")
    schema = tfdv.infer_schema(reference)
    spans = [of(name) for name in trial["calibration"]]
    bounded = with_drift(schema, reference, spans, trial["factor"], trial["rows"])

    def letters(current, touched):
        anomalies = {"a": anomalous(current, schema), "c": anomalous(current, bounded, reference)}
        return "".join(key for key, names in anomalies.items() if (names & set(touched) if touched else names))

    clean = [letters(of(name), ()) for name in trial["clean"]]
    unseen = [bool(anomalous(of(new), tfdv.infer_schema(of(old)))) for old, new in trial["unseen"]]
    return {
        "cases": {case: letters(of(name), touched) for case, (name, touched) in trial["cases"].items()},
        "clean": {key: sum(key in alarms for alarms in clean) for key in "ac"},
        "unseen": {"a": sum(unseen)},
    }


def main(folder):
    """Answer every data set."""
    said = {path.name: answers(path) for path in sorted(folder.iterdir()) if path.is_dir()}
    (folder / "answers.json").write_text(json.dumps({"version": tfdv.__version__, "answers": said}), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
