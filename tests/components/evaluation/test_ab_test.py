"""A/B tests: what is joined and counted, differences against SciPy, and how often chance alone looks like one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.stats
import sklearn.metrics
from click.testing import CliRunner
from drivetrain.components.evaluation.ab_test import ab_test
from drivetrain.console.cli import cli
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.errors import InputError
from drivetrain.serving.log_files import day_folder, file_name
from drivetrain.serving.logged_rows import AnsweredRequest, RowSchema
from numpy.typing import NDArray

INPUTS = {"customer": FieldSpec("int64")}
LATE = {"late": FieldSpec("float32")}
CLASSES = {"kinds": FieldSpec("float32", (3,))}
START = int(datetime(2026, 11, 26, tzinfo=UTC).timestamp()) * 1_000_000


def write(
    folder: Path, version: int, ids: Sequence[str], scores: Any, customers: Any, *, later: int = 0,
    outputs: Mapping[str, FieldSpec] = LATE, inputs: Mapping[str, FieldSpec] = INPUTS,
) -> None:  # fmt: skip
    """A file as the server writes it, of requests with as many rows each as they have customers.

    A score that is None is that of a client that asked for other outputs.
    """
    (output,) = outputs
    requests = [
        AnsweredRequest(
            name, START + later + number, {"customer": np.atleast_1d(customer).tolist()}, np.size(customer),
            {} if score is None else {
                output: np.asarray(score, np.float32).reshape(np.size(customer), *outputs[output].shape)
            }, 0,
        )
        for number, (name, score, customer) in enumerate(zip(ids, scores, customers, strict=True))
    ]  # fmt: skip
    schema = RowSchema("flights", version, f"digest-{version}", "predict", Signature(inputs, outputs))
    path = day_folder(folder / "flights", version, START) / file_name("predict", START + later)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(schema.whole([schema.table(requests)]), path)


def experiment(folder: Path, rng: np.random.Generator, rows: int, noise: float) -> dict[str, NDArray[Any]]:
    """Versions 3 and 4, of which 4 sees labels less clearly by some noise; ids, labels and scores of both."""
    truth = rng.random(2 * rows)
    labels = (rng.random(2 * rows) < truth).astype(np.int64)
    scores = np.clip(truth + np.repeat([0.0, noise], rows) * rng.normal(size=2 * rows), 0.01, 0.99)
    ids = np.array([f"r{number}" for number in range(2 * rows)])
    for version, part in ((3, slice(0, rows)), (4, slice(rows, None))):
        write(folder, version, ids[part].tolist(), scores[part], np.arange(2 * rows)[part])
    return {"request_id": ids, "late": labels, "score": scores}


def test_the_versions_against_scipy(tmp_path: Path) -> None:
    rows = 3000
    whole = experiment(tmp_path, np.random.default_rng(1), rows, 0.4)
    known = np.arange(2 * rows) % 5 != 0
    labels = {"request_id": whole["request_id"][known], "late": whole["late"][known]}
    result = ab_test(tmp_path / "flights", labels, label="late", metrics=["mean_label", "auc", "log_loss"])
    assert (result.model, result.baseline, result.repeated) == ("flights", 3, 0)
    assert [(each.version, each.rows, each.labelled, each.labelled_share) for each in result.versions] == [
        (3, 3000, 2400, 0.8), (4, 3000, 2400, 0.8),
    ]  # fmt: skip
    old, new = (whole["late"][part][known[part]] for part in (slice(0, rows), slice(rows, None)))
    by_metric = {each.metric: each for each in result.differences}
    oracle = scipy.stats.ttest_ind(new, old, equal_var=False)
    mean = by_metric["mean_label"]
    assert mean.difference == pytest.approx(new.mean() - old.mean(), abs=1e-12)
    error = oracle.confidence_interval().high - oracle.confidence_interval().low
    assert mean.upper - mean.lower == pytest.approx(error, rel=0.4)  # of 20 buckets a side
    assert mean.p_value == pytest.approx(oracle.pvalue, abs=0.2)
    # Noise makes predictions worse, and that is no chance.
    assert by_metric["auc"].upper < 0
    assert by_metric["log_loss"].lower > 0
    assert by_metric["auc"].p_value is not None
    assert by_metric["auc"].p_value < 1e-6


def test_chance_alone_looks_like_a_difference_as_often_as_the_level_says(tmp_path: Path) -> None:
    p_values = []
    for seed in range(60):
        folder = tmp_path / str(seed)
        whole = experiment(folder, np.random.default_rng(seed), 300, 0.0)
        result = ab_test(folder / "flights", whole, label="late", metrics=["mean_label", "log_loss"])
        p_values += [each.p_value for each in result.differences]
    small = sum(p is not None and p < 0.05 for p in p_values)
    assert 1 <= small <= 15  # of 120, of which 6 are expected
    assert 0.35 < np.mean([p for p in p_values if p is not None]) < 0.65


def test_keys_count_once_and_rows_of_a_request_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    for version in (3, 4):
        ids = [f"{version}-{number}" for number in range(100)]
        write(tmp_path, version, ids, rng.random((100, 2)), rng.integers(0, 9, (100, 2)))
    write(tmp_path, 4, ["3-0", "3-1"], [0.5, 0.5], [1, 1], later=1000)  # tried again, at another version
    keys = [f"{version}-{number}" for version in (3, 4) for number in range(100) for _ in range(2)]
    late = rng.integers(0, 2, 400)
    labels = {"request_id": keys, "request_row": np.arange(400) % 2, "late": late}
    result = ab_test(tmp_path, labels, label="late", metrics=["mean_label"], baseline=4)
    assert [(each.version, each.rows, each.labelled) for each in result.versions] == [(3, 200, 200), (4, 200, 200)]
    assert (result.repeated, result.differences[0].version) == (2, 3)
    assert result.versions[0].metrics["mean_label"] == late[:200].mean()
    # A request of several rows of which no label is known stands in nobody's way.
    names = ["one", "two", "three", "four"]
    for version in (3, 4):
        write(tmp_path / "single", version, names[version - 3 :: 2], [0.1, 0.9], [1, 2])
    write(tmp_path / "single", 4, ["several"], rng.random((1, 3)), rng.integers(0, 9, (1, 3)))
    result = ab_test(
        tmp_path / "single", {"request_id": names, "late": [0, 1, 1, 0]}, label="late", metrics=["mean_label"]
    )
    assert [(each.version, each.rows, each.labelled) for each in result.versions] == [(3, 2, 2), (4, 5, 2)]
    assert result.repeated == 0
    with pytest.raises(InputError, match="request '3-0' has several rows, and the labels do not say of which row"):
        ab_test(tmp_path, {"request_id": keys[::2], "late": late[::2]}, label="late")


def test_what_others_asked_in_several_rows_asks_nothing_of_the_labels(tmp_path: Path) -> None:
    whole = experiment(tmp_path, np.random.default_rng(8), 100, 0.0)
    write(tmp_path, 4, ["by hand"], [[0.1, 0.2, 0.3]], [[1, 2, 3]], later=1000)
    result = ab_test(tmp_path, whole, label="late", metrics=["mean_label"])
    assert [(each.rows, each.labelled) for each in result.versions] == [(100, 100), (103, 100)]
    assert result.repeated == 0
    assert result.versions[1].metrics["mean_label"] == whole["late"][100:].mean()


def test_scores_of_several_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    ids, labels = [f"r{number}" for number in range(400)], rng.integers(0, 3, 400)
    scores = rng.dirichlet(np.ones(3), 400).astype(np.float32)
    for version, part in ((3, slice(0, 200)), (4, slice(200, None))):
        write(tmp_path, version, ids[part], scores[part], np.zeros(200, int), outputs=CLASSES)
    shuffled = rng.permutation(400)
    table = {"request_id": np.array(ids)[shuffled], "kind": labels[shuffled]}
    result = ab_test(tmp_path, table, label="kind", metrics=["accuracy", "log_loss"])
    right = scores.argmax(1) == labels
    assert [each.metrics["accuracy"] for each in result.versions] == [right[:200].mean(), right[200:].mean()]
    losses = [sklearn.metrics.log_loss(labels[part], scores[part]) for part in (slice(0, 200), slice(200, None))]
    assert [each.metrics["log_loss"] for each in result.versions] == pytest.approx(losses, rel=1e-6)
    kinds = ["red", "rosé", "white"]
    texts = pa.table({"request_id": ids, "kind": [kinds[each] for each in labels]})
    named = ab_test(tmp_path, texts, label="kind", metrics=["accuracy", "log_loss"], classes=kinds)
    assert named.versions == result.versions
    pa.csv.write_csv(texts, tmp_path / "labels.csv")
    files = [
        "ab-test",
        str(tmp_path / "flights"),
        str(tmp_path / "labels.csv"),
        "--label",
        "kind",
        "--metric",
        "accuracy",
    ]
    options = [part for kind in kinds for part in ("--class", kind)]
    body = json.loads(CliRunner().invoke(cli, [*files, *options, "--json"], catch_exceptions=False).stdout)
    assert body["versions"][1]["metrics"] == {"accuracy": right[200:].mean()}
    with pytest.raises(InputError, match="the labels 'kind' are lists"):
        ab_test(tmp_path, pa.table({"request_id": ids, "kind": [[1]] * 400}), label="kind")


def test_a_key_may_be_an_input(tmp_path: Path) -> None:
    whole = experiment(tmp_path, np.random.default_rng(4), 200, 0.0)
    labels = {"customer": np.arange(400, dtype=np.int32), "late": whole["late"]}
    result = ab_test(tmp_path, labels, label="late", key="customer")
    assert [each.labelled for each in result.versions] == [200, 200]
    frame = result.frame()
    assert set(frame["version"]) == {3, 4}
    assert frame[frame["version"] == 3]["difference"].isna().all()
    assert "version 4 − 3: auc" in repr(result)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": "later"}, "no column 'later'"),
        ({"key": "customers"}, "no column 'customers'"),
        ({"prediction": "score"}, "no output 'score'"),
        ({"baseline": 7}, "no answers of version 7"),
        ({"baseline": "1"}, "no answers of version '1'"),
        ({"versions": 1}, "versions=1 are no version numbers"),
        ({"versions": ["1", "2"]}, r"versions=\['1', '2'\] are no version numbers"),
        ({"since": 5}, "since=5 is not a time"),
        ({"signature": "classify"}, "signature 'classify'"),
        ({"since": "yesterday"}, "since='yesterday' is not a time"),
        ({"until": "2026-11-26"}, "not one of the log's 40 rows is of a request of this time"),
        ({"since": "2026-11-26T00:00:00.000020"}, "not one of the log's 40 rows"),
        ({"shares": {}}, "the shares {} are none"),
        ({"shares": {3: 0, 4: 100}}, "are none"),
        ({"shares": {3: 60, 4: 60}}, "are none"),
        ({"shares": {3: 40, 4: 40}}, "leave 20% of the requests for other versions, and the log has none"),
        ({"shares": {4: 100}}, "leave 0% of the requests for other versions, and the log has those of 3"),
        ({"shares": {5: 10}}, "leave 90% of the requests for other versions, and the log has those of 3, 4"),
        ({"since": "0001-01-01T00:00+14:00"}, "is not a time"),
        ({"until": "9999-12-31T23:00-14:00"}, "is not a time"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    whole = experiment(tmp_path, np.random.default_rng(5), 20, 0.0)
    with pytest.raises(InputError, match=words):
        ab_test(tmp_path, {**whole, "customers": whole["late"]}, **{"label": "late", **options})


def test_a_version_without_labels_is_left_out(tmp_path: Path) -> None:
    """The others are compared as if it had answered nobody."""
    whole = experiment(tmp_path / "two", np.random.default_rng(8), 200, 0.2)
    alone = ab_test(tmp_path / "two", whole, label="late")
    experiment(tmp_path / "three", np.random.default_rng(8), 200, 0.2)
    write(tmp_path / "three", 2, ["s1", "s2"], [0.5, 0.6], [1, 2])
    result = ab_test(tmp_path / "three", whole, label="late")
    assert (result.baseline, result.versions, result.differences) == (3, alone.versions, alone.differences)
    assert result.without_labels == {2: 2}
    assert "version 2 was left out, since none of its 2 rows has a label" in repr(result)
    assert json.loads(json.dumps(result.to_dict()))["without_labels"] == {"2": 2}
    chosen = ab_test(tmp_path / "three", whole, label="late", versions=[4, 3], baseline=4)
    assert ([each.version for each in chosen.versions], chosen.baseline) == ([3, 4], 4)
    assert not chosen.without_labels
    with pytest.raises(InputError, match="no answer of version 2 has a label"):
        ab_test(tmp_path / "three", whole, label="late", baseline=2)
    with pytest.raises(InputError, match="the baseline, version 2, is not one of versions"):
        ab_test(tmp_path / "three", {**whole, "request_id": ["s1", "s2", *whole["request_id"][2:]]}, label="late",
                versions=[3, 4], baseline=2)  # fmt: skip
    with pytest.raises(InputError, match="the log has no answers of version 9"):
        ab_test(tmp_path / "three", whole, label="late", versions=[3, 9])
    frame = pa.table({"request_id": whole["request_id"].tolist(), "late": whole["late"]})
    pq.write_table(frame, tmp_path / "labels.parquet")
    asked = ["ab-test", str(tmp_path / "three"), str(tmp_path / "labels.parquet"), "--label", "late"]
    assert "version 2 was left out" in CliRunner().invoke(cli, asked).stdout
    assert "version 2 was left out" not in CliRunner().invoke(cli, [*asked, "--versions", "3,4"]).stdout
    assert "are no versions" in CliRunner().invoke(cli, [*asked, "--versions", "3-4"]).stderr


def test_labels_that_contradict_each_other_or_join_nothing(tmp_path: Path) -> None:
    experiment(tmp_path, np.random.default_rng(6), 20, 0.0)
    with pytest.raises(InputError, match="'r1' has two different labels"):
        ab_test(tmp_path, {"request_id": ["r1", "r1"], "late": [0, 1]}, label="late")
    with pytest.raises(InputError, match="no answer of version 4 has a label"):
        ab_test(tmp_path, {"request_id": ["r1", "r1"], "late": [1, 1]}, label="late")
    with pytest.raises(InputError, match="no answer of version 4 has a label") as caught:
        ab_test(tmp_path, {"request_id": ["r1"], "late": [1]}, label="late", versions=[3, 4])
    assert "--since" in str(caught.value.fix)
    assert "--versions" in str(caught.value.fix)
    with pytest.raises(InputError, match="no file of a request log"):
        ab_test(tmp_path / "other", {"request_id": ["r1"], "late": [0]}, label="late")


@pytest.mark.parametrize(
    ("counts", "shares", "is_mismatch"),
    [
        ({3: 90, 4: 10}, {4: 10}, False),
        ({3: 880, 4: 120}, {4: 10}, False),  # p = 0.035
        ({3: 850, 4: 150}, {4: 10}, True),
        ({3: 200, 4: 200}, {3: 90.5, 4: 9.5}, True),
        ({3: 310, 4: 290, 5: 305}, {3: 100 / 3, 4: 100 / 3, 5: 100 / 3}, False),
        ({3: 50, 4: 50}, {3: 49, 4: 49, 5: 2}, False),
        ({3: 500, 4: 500}, {3: 49, 4: 49, 5: 2}, True),  # 5 was never asked
    ],
)
def test_requests_by_version_against_scipy(
    tmp_path: Path, counts: dict[int, int], shares: dict[int, float], is_mismatch: bool
) -> None:
    """Each request counts once, however many rows it has, and as it was answered first."""
    rng = np.random.default_rng(0)
    for version, count in counts.items():
        ids = [f"{version}-{number}" for number in range(count)]
        write(tmp_path, version, ids, rng.random((count, 3)), rng.integers(0, 9, (count, 3)))
    write(tmp_path, 4, ["3-0", "3-1"], [[0.5] * 2] * 2, [[1] * 2] * 2, later=10_000)  # tried again
    keys = [f"{version}-{number}" for version, count in counts.items() for number in range(count)]
    labels = {"request_id": keys, "request_row": np.zeros(len(keys), int), "late": rng.integers(0, 2, len(keys))}
    ratio = ab_test(tmp_path, labels, label="late", metrics=["mean_label"], shares=shares).sample_ratio
    assert ratio is not None
    rest = {version: 100 - sum(shares.values()) for version in counts if version not in shares}
    expected = {version: share / 100 * sum(counts.values()) for version, share in {**shares, **rest}.items()}
    oracle = scipy.stats.chisquare([counts.get(version, 0) for version in expected], [*expected.values()])
    assert (ratio.statistic, ratio.p_value) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-9)
    assert ratio.requests == {version: counts.get(version, 0) for version in expected}
    assert ratio.is_mismatch == is_mismatch


def test_a_time_takes_its_requests_alone(tmp_path: Path) -> None:
    """From its first moment on, and without its last; labels of others are of no matter."""
    day = 86_400_000_000
    for number, version in enumerate((3, 4, 3, 4)):
        ids = [f"{number}-{each}" for each in range(10)]
        write(tmp_path, version, ids, np.full(10, 0.1 * number), np.arange(10), later=number // 2 * day)
    keys = [f"{number}-{each}" for number in range(4) for each in range(10)]
    labels = {"request_id": keys, "late": np.arange(40) % 2}
    windows: list[tuple[dict[str, Any], int]] = [
        ({}, 20),
        ({"since": "2026-11-27"}, 10),
        ({"until": "2026-11-27"}, 10),
        ({"since": "2026-11-26", "until": "2026-11-28"}, 20),
        ({"since": "2026-11-26T02:00+02:00", "until": "2026-11-26T00:00:00.000005"}, 5),
    ]
    for window, rows in windows:
        result = ab_test(tmp_path, labels, label="late", metrics=["mean_label"], **window)
        assert [each.rows for each in result.versions] == [rows, rows], window
    assert result.sample_ratio is None


def test_who_asked_for_another_output_is_left_out_and_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    labels, scores = rng.integers(0, 2, 80), rng.random(80)
    ids = [f"r{number}" for number in range(80)]
    for version, part in ((3, slice(0, 40)), (4, slice(40, 80))):
        asked = [score if at % 4 else None for at, score in enumerate(scores[part])]
        write(tmp_path, version, ids[part], asked, np.arange(80)[part])
    write(tmp_path, 4, ["r0"], [scores[0]], [0], later=1000)  # asked again, and for the prediction
    known = {"request_id": ids, "late": labels}
    result = ab_test(tmp_path, known, label="late", metrics=["auc"], shares={3: 50, 4: 50})
    assert [(each.rows, each.labelled) for each in result.versions] == [(30, 30), (31, 31)]
    assert (result.without_prediction, result.repeated) == (20, 0)
    assert result.to_dict()["without_prediction"] == 20
    assert result.sample_ratio is not None
    assert result.sample_ratio.requests == {3: 40, 4: 40}  # of all that was asked
    kept = np.arange(80) % 4 != 0
    oracle = sklearn.metrics.roc_auc_score(labels[:40][kept[:40]], scores[:40][kept[:40]].astype(np.float32))
    assert result.versions[0].metrics["auc"] == pytest.approx(oracle, abs=1e-12)
    write(tmp_path / "none", 3, ["a"], [None], [1])
    with pytest.raises(InputError, match="no client asked for the prediction"):
        ab_test(tmp_path / "none", {"request_id": ["a"], "late": [1]}, label="late")


def test_a_label_may_be_called_as_a_fact_of_the_log(tmp_path: Path) -> None:
    whole = experiment(tmp_path, np.random.default_rng(12), 40, 0.0)
    labels = {"request_id": whole["request_id"], "model_version": whole["late"]}
    result = ab_test(tmp_path, labels, label="model_version", metrics=["mean_label"])
    assert [each.version for each in result.versions] == [3, 4]
    assert result.versions[0].metrics["mean_label"] == whole["late"][:40].mean()


def test_keys_and_predictions_that_cannot_be_compared(tmp_path: Path) -> None:
    lists, texts = {"customer": FieldSpec("int64", (1,))}, {"customer": FieldSpec("string")}
    write(tmp_path / "lists", 3, ["a"], [0.5], [[[7]]], inputs=lists)
    labels = {"customer": [7], "late": [1]}
    with pytest.raises(InputError, match="the column 'customer' holds lists"):
        ab_test(tmp_path / "lists", labels, label="late", key="customer")
    write(tmp_path / "types", 3, ["a"], [0.5], [7])
    write(tmp_path / "types", 4, ["b"], [0.5], ["7"], inputs=texts)
    with pytest.raises(InputError, match="the column 'customer', has incompatible types: int64 vs string in the log"):
        ab_test(tmp_path / "types", labels, label="late", key="customer")


def test_the_verb_prints_the_table_and_json(tmp_path: Path) -> None:
    whole = experiment(tmp_path, np.random.default_rng(7), 500, 0.5)
    labels = pa.table({"request_id": whole["request_id"], "late": whole["late"]})
    pa.csv.write_csv(labels, tmp_path / "labels.csv")
    files = [str(tmp_path / "flights"), str(tmp_path / "labels.csv")]
    arguments = ["ab-test", *files, "--label", "late", "--metric", "auc"]
    text = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert text.exit_code == 0, text.output
    assert "against version 3" in text.output
    body = json.loads(CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False).stdout)
    assert [each["labelled_share"] for each in body["versions"]] == [1.0, 1.0]
    assert body["differences"][0]["metric"] == "auc"
    assert body["differences"][0]["difference"] < 0
    assert body["sample_ratio"] is None
    for share, is_mismatch in (("4=10", True), ("4=50%", False)):
        chosen = [*arguments, "--share", share, "--since", "2026-11-26", "--until", "2026-11-27"]
        ratio = json.loads(CliRunner().invoke(cli, [*chosen, "--json"], catch_exceptions=False).stdout)["sample_ratio"]
        assert ratio["requests"] == {"3": 500, "4": 500}
        assert (ratio["p_value"] < 0.001, ratio["is_mismatch"]) == (is_mismatch, is_mismatch)
        printed = " ".join(CliRunner().invoke(cli, chosen, catch_exceptions=False).output.split())
        assert f"version 4 50.00% of {ratio['shares']['4']:g}%" in printed
        assert ("warning: requests by version" in printed) == is_mismatch
    refused = CliRunner().invoke(cli, [*arguments, "--share", "4=ten"])
    assert "--share '4=ten' is not a share" in str(refused.exception) + refused.output
