"""`POST /v1/models/NAME:explain` against closed forms and the Explainer's own numbers, and what it costs others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import drivetrain as dt
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("httptools")

from drivetrain.components.explanation.explain import Effort
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.serving import Client
from drivetrain.serving.api import Described, RequestError, StatusCode
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.explanation import (
    MOST_STEPS,
    ExplanationRequest,
    RowExplainer,
    explained_outputs,
)
from drivetrain.serving.rest import Needs, methods_of, needs_of
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.usual import Baseline, baseline_of
from drivetrain.serving.version import LoadedVersion
from drivetrain.serving.warmup import warmup_file
from drivetrain.tests.engine.bundles.test_bundle import build, rows
from drivetrain.tests.serving.open_server import OpenServer, open_server

pytestmark = pytest.mark.engine


def classes(c: ops.Columns) -> ops.Columns:
    """Three classes by two numbers, and how many there were."""
    x, y = c["x"], c["y"]
    logits = jnp.stack([ops.cast(2.0 * x + 3.0 * y, "float32"), ops.cast(x, "float32"), ops.cast(-y, "float32")], -1)
    return {"name": ops.upper(c["town"]), "probabilities": jnp.exp(logits) / jnp.exp(logits).sum(-1, keepdims=True)}


BUNDLES: tuple[tuple[str, Any, dict[str, list[Any]]], ...] = (
    ("linear", lambda c: {"sum": 2.0 * c["a"] - 3.0 * c["b"]}, {"a": [1.0, 2.0], "b": [0.5, 1.0]}),
    ("towns", lambda c: {"sum": 2.0 * ops.fill_missing(c["a"], 7.0) + ops.vocabulary(c["town"], oov_buckets=1)
     + 10.0 * c["n"] + 5.0 * ops.fill_missing(c["flag"], False)},
     {"a": [1.0, None], "town": ["Ulm", "Bonn"], "n": [1, 2], "flag": [True, None]}),
    ("curve", lambda c: {"p": 1 / (1 + jnp.exp(-ops.cast(2.0 * c["x"] - 3.0 * c["y"] + 0.5, "float32")))},
     {"x": [1.0, 2.0], "y": [0.5, 1.0]}),
    ("classes", classes, {"x": [1.0, 2.0], "y": [0.5, 1.0], "town": ["Ulm", "Bonn"]}),
    ("whole", lambda c: {"sum": 2 * c["n"]}, {"n": [1, 2]}),
    ("words", lambda c: {"loud": ops.upper(c["town"])}, {"town": ["Ulm", "Bonn"]}),
    ("jump", lambda c: {"step": ops.cast(c["x"] > 1.0, "float32")}, {"x": [0.0, 2.0]}),
    ("strict", lambda c: {"sum": jnp.log(ops.cast(c["n"], "float32")) + ops.cast(c["a"], "float32")},
     {"n": [1, 2], "a": [1.0, 2.0]}),
    ("root", lambda c: {"log": jnp.log(ops.cast(c["x"], "float32"))}, {"x": [1.0, 2.0]}),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    for name, function, table in BUNDLES:
        analyze(function, pa.table(table)).save(folder / name / "1")
    (folder / "mixed").mkdir()
    build(folder / "built").rename(folder / "mixed" / "1")
    usual: list[dict[str, Any]] = [
        {"a": 1.0, "town": "Ulm", "n": 1, "flag": True},
        {"a": 3.0, "town": "Ulm", "n": 3, "flag": True},
        {"a": None, "town": "Bonn", "n": 9, "flag": False},
    ]
    bundle = Bundle.load(folder / "towns" / "1")
    signature = next(iter(bundle.signatures))
    (folder / "towns" / "1.warmup.jsonl").write_bytes(warmup_file(usual, signature) + b"no JSON\n")
    bundle.with_request_log({"town": "deny"}).save(folder / "private" / "1")
    (folder / "private" / "1.warmup.jsonl").write_bytes(warmup_file(usual, signature))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[OpenServer]:
    names = (*(name for name, _, _ in BUNDLES), "mixed", "private")
    with open_server(
        ServerOptions(poll_seconds=0), [ModelConfig(name, str(folder / name)) for name in names]
    ) as running:
        yield running


def ask(server: OpenServer, name: str, row: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The explanation of a row."""
    body = json.dumps({"instances": [row], **more}).encode()
    status, headers, answer = server.ask("POST", f"/v1/models/{name}:explain", body=body)
    assert status == 200, answer
    assert headers["x-drivetrain-version"] == "1"
    assert headers["x-drivetrain-digest"]
    assert headers["x-request-id"]
    (explanation,) = answer["explanations"]
    return dict(explanation)


def parts(explanation: Mapping[str, Any]) -> dict[str, Any]:
    return {each["name"]: each["attribution"] for each in explanation["inputs"]}


def test_of_a_linear_model_they_are_weight_times_distance_and_add_up(server: OpenServer) -> None:
    baseline = [{"a": 1.0, "b": 4.0}, {"a": 3.0, "b": 0.0}, {"a": 5.0, "b": 2.0}]
    explanation = ask(server, "linear", {"a": 7.5, "b": -1.0}, baseline=baseline)
    assert explanation["baseline"] == {"source": "request", "rows": 3}
    assert [(each["name"], each["value"], each["baseline"], each["by"]) for each in explanation["inputs"]] == [
        ("a", 7.5, 3.0, "gradients"), ("b", -1.0, 2.0, "gradients"),
    ]  # fmt: skip
    assert parts(explanation) == pytest.approx({"a": 2 * (7.5 - 3), "b": -3 * (-1 - 2)}, rel=1e-4)
    assert explanation["prediction"] == pytest.approx(18.0)
    assert explanation["baseline_prediction"] == pytest.approx(0.0, abs=1e-5)
    assert explanation["gap"] == pytest.approx(18 - 0 - sum(parts(explanation).values()), abs=1e-5)
    assert abs(explanation["gap"]) < 1e-3
    assert explanation["note"] == ""


def test_of_a_logistic_model_they_are_its_closed_form(server: OpenServer) -> None:
    """The gradient is along w everywhere: each part has the share w·(x − b) of the change of the logit."""
    explanation = ask(server, "curve", {"x": 1.0, "y": -0.5}, baseline=[{"x": 0.2, "y": 0.1}], steps=MOST_STEPS)
    logits = [2 * 1.0 + 3 * 0.5 + 0.5, 2 * 0.2 - 3 * 0.1 + 0.5]
    here, there = (1 / (1 + np.exp(-each)) for each in logits)
    expected = {"x": 2 * 0.8, "y": -3 * -0.6}
    expected = {name: part / (logits[0] - logits[1]) * (here - there) for name, part in expected.items()}
    assert parts(explanation) == pytest.approx(expected, abs=2e-4)
    assert abs(explanation["gap"]) < 2e-4
    assert explanation["prediction"] - explanation["baseline_prediction"] == pytest.approx(here - there, abs=1e-5)


def test_they_are_those_of_the_explainer(server: OpenServer, folder: Path) -> None:
    """Of the same bundle, with the same rows to compare with."""
    table = rows(40).select(["delay", "speed", "hour", "carrier"])
    theirs = dt.explain(table, folder / "mixed" / "1", prediction="probability", effort=Effort(attributed=3, steps=24))
    sent = json.loads(json.dumps(table.to_pylist()).replace("NaN", "null"))
    for at in range(3):
        explanation = ask(server, "mixed", sent[at], baseline=sent, output="probability", steps=24)
        ours = {each["name"]: each["attribution"] for each in explanation["inputs"] if each["by"] == "gradients"}
        assert ours.keys() == {name for name in ("delay", "speed") if sent[at][name] is not None}
        attributed = theirs.attributions.to_pylist()[at]
        assert ours == pytest.approx({name: attributed[name] for name in ours}, abs=2e-4)


def test_inputs_without_gradients_are_replaced_alone_by_what_is_usual(server: OpenServer) -> None:
    """The rows of the warm-up file say what that is: a mean, medians, the most frequent; a damaged line is left out."""
    row = {"a": 4.0, "town": "Bonn", "n": 5, "flag": False}
    explanation = ask(server, "towns", row)
    assert explanation["baseline"] == {"source": "warm-up file", "rows": 3}
    assert {each["name"]: (each["baseline"], each["by"]) for each in explanation["inputs"]} == {
        "a": (2.0, "gradients"), "town": ("Ulm", "replacement"), "n": (3, "replacement"), "flag": (True, "replacement"),
    }  # fmt: skip
    with Client(server.rest, "towns") as client:
        predicted = [float(client.predict([{**row, **change}]).rows[0]) for change in ({}, {"town": "Ulm"})]
    assert parts(explanation) == pytest.approx(
        {"a": 4.0, "town": predicted[0] - predicted[1], "n": 20.0, "flag": -5.0}, abs=1e-3
    )
    assert predicted[0] != predicted[1]
    assert explanation["gap"] == pytest.approx(0.0, abs=1e-3)  # of the gradients alone
    # What is missing has no way to the mean: it is replaced too.
    missing = ask(server, "towns", {**row, "a": None, "flag": None})
    assert {each["name"]: each["by"] for each in missing["inputs"]} == dict.fromkeys(row, "replacement")
    assert parts(missing)["a"] == pytest.approx(2 * (7 - 2.0), abs=1e-3)
    assert missing["baseline_prediction"] is missing["gap"] is None


def test_what_no_log_may_have_is_not_told(server: OpenServer) -> None:
    explanation = ask(server, "private", {"a": 4.0, "town": "Bonn", "n": 5, "flag": False})
    assert {each["name"]: each["baseline"] for each in explanation["inputs"]} == {
        "a": 2.0, "town": None, "n": 3, "flag": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("towns", {"a": 2.0, "town": "Ulm", "n": 3, "flag": True}),
        ("private", {"a": 2.0, "town": None, "n": 3, "flag": True}),
        ("jump", {}),
    ],
)
def test_the_metadata_tell_what_is_usual(server: OpenServer, name: str, usual: dict[str, Any]) -> None:
    status, _, metadata = server.ask("GET", f"/v2/models/{name}")
    assert (status, metadata["parameters"]["usual"]) == (200, usual)


def test_of_several_classes_each_has_its_own_and_they_cancel(server: OpenServer) -> None:
    """Probabilities add up to 1, so over classes each part adds up to 0."""
    explanation = ask(server, "classes", {"x": 1.0, "y": 0.5, "town": "Ulm"}, steps=64)
    assert explanation["output"] == "probabilities"
    assert explanation["baseline"] == {"source": "defaults", "rows": 0}
    attributed = parts(explanation)
    assert attributed["town"] == [0.0, 0.0, 0.0]
    for name in ("x", "y"):
        assert len(attributed[name]) == 3
        assert sum(attributed[name]) == pytest.approx(0.0, abs=1e-4)
    change = np.array(explanation["prediction"]) - explanation["baseline_prediction"]
    np.testing.assert_allclose(explanation["baseline_prediction"], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(np.add(attributed["x"], attributed["y"]), change, atol=1e-3)
    np.testing.assert_allclose(change - np.add(attributed["x"], attributed["y"]), explanation["gap"], atol=1e-6)


def test_a_model_without_gradients_is_explained_by_replacement_and_says_so(server: OpenServer) -> None:
    explanation = ask(server, "whole", {"n": 4}, baseline=[{"n": 1}, {"n": 1}, {"n": 9}])
    assert parts(explanation) == {"n": 6.0}
    assert "no input to integrate gradients along" in explanation["note"]
    jump = ask(server, "jump", {"x": 2.0}, baseline=[{"x": 0.0}], steps=3)
    assert (jump["prediction"], jump["baseline_prediction"]) == (1.0, 0.0)
    assert abs(jump["gap"]) > 0.5  # which the page says


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("linear", {}, "no 'instances'"),
        ("linear", {"instances": []}, "'instances' is empty"),
        ("linear", {"instances": 3}, "'instances' is a number"),
        ("linear", {"instances": [{"a": 1.0}]}, "'b'"),
        ("linear", {"instances": [{"a": "x", "b": 1.0}]}, "'a'"),
        ("linear", {"instances": [{"a": 1, "b": 1}] * 2}, "send one"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "baseline": []}, "'baseline' is empty"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "baseline": [{"a": "x", "b": 1}]}, "'a'"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "baseline": [{"a": 1}]}, "'baseline' lacks 'b'"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "baseline": [{"a": 1, "b": 1}] * 513}, "512 at most"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "steps": 0}, "'steps' is 0"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "steps": True}, "'steps' is True"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "steps": 1000}, "from 1 to 128"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "output": "no"}, "no output 'no'"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "output": 1}, "'output' is a number"),
        ("linear", {"instances": [{"a": 1, "b": 1}], "signature_name": "no"}, "no signature 'no'"),
        ("classes", {"instances": [{"x": 1, "y": 1, "town": "a"}], "output": "name"}, "no output 'name' of numbers"),
        ("words", {"instances": [{"town": "Ulm"}]}, "no output of numbers"),
        ("root", {"instances": [{"x": -1.0}]}, "'log' cannot be explained"),
        ("root", {"instances": [{"x": 1.0}], "baseline": [{"x": -1.0}]}, "'log' cannot be explained"),
    ],
)
def test_what_cannot_be_explained_is_refused_and_named(server: OpenServer, name: str, body: Any, words: str) -> None:
    status, _, answer = server.ask("POST", f"/v1/models/{name}:explain", body=json.dumps(body).encode())
    assert status == 400
    assert words in answer["error"]


def test_what_cannot_be_replaced_says_why(server: OpenServer) -> None:
    """The logarithm of 0, which is usual where nothing else is said, is no number."""
    explanation = ask(server, "strict", {"n": 5, "a": 2.0})
    inputs = {each["name"]: each for each in explanation["inputs"]}
    assert inputs["a"]["attribution"] == pytest.approx(2.0, abs=1e-3)
    assert inputs["a"]["problem"] == ""
    assert inputs["n"]["attribution"] is None
    assert "the model gave -inf" in inputs["n"]["problem"]


def test_a_version_that_sleeps_wakes_for_it_and_others_are_named(folder: Path) -> None:
    names = ("linear", "curve")
    configs = [ModelConfig(name, str(folder / name), labels={"stable": 1}) for name in names]
    with open_server(ServerOptions(poll_seconds=0, memory_bytes=1), configs) as server:
        for _ in range(2):
            assert parts(ask(server, "linear", {"a": 1.0, "b": 0.0}))["a"] == pytest.approx(2.0, abs=1e-3)
            assert set(parts(ask(server, "curve", {"x": 1.0, "y": 0.0}))) == {"x", "y"}
        body = b'{"instances": [{"a": 1, "b": 1}]}'
        for path in ("linear/versions/1", "linear/labels/stable"):
            assert server.ask("POST", f"/v1/models/{path}:explain", body=body)[0] == 200
        for path in ("linear/versions/7", "none"):
            assert server.ask("POST", f"/v1/models/{path}:explain", body=body)[0] == 404
        status, headers, _ = server.ask("GET", "/v1/models/linear:explain")
        assert (status, headers["allow"]) == (405, "POST")
        metrics = server.ask("GET", "/metrics")[2].decode()
        assert 'drivetrain_serving_requests_total{model="linear"' not in metrics


def test_it_is_for_keys_that_may_predict() -> None:
    for path in ("/v1/models/m:explain", "/v1/models/m/versions/3:explain", "/v1/models/%6d/labels/a:explain"):
        assert needs_of("POST", path) == Needs("predict", ("m",))
        assert methods_of(path) == "POST"


# --- what is usual ---


def test_what_is_usual_of_every_type() -> None:
    inputs = {
        name: FieldSpec(dtype) for name, dtype in (("x", "float64"), ("n", "int64"), ("t", "string"), ("f", "bool"))
    }
    signature = Signature({**inputs, "list": FieldSpec("list<float64>")}, {}, {"t": "none", "x": 2.5})
    nothing = {"x": 2.5, "n": 0, "t": "none", "f": False, "list": None}
    zero = dict.fromkeys(nothing, 0.0)
    assert baseline_of({}, signature, "request") == Baseline(nothing, zero, 0, "defaults")
    columns = {
        "x": pa.array([1.0, 3.0, None, np.inf]), "n": pa.array([5, 1, 9, None]), "t": pa.array(["b", "a", "b", None]),
        "f": pa.array([True, True, False, None]), "list": pa.array([[1.0], [1.0], [], None]),
    }  # fmt: skip
    usual = {"x": 2.0, "n": 5, "t": "b", "f": True, "list": None}
    assert baseline_of(columns, signature, "request") == Baseline(usual, {**zero, "x": 1.0}, 4, "request")
    missing = {name: pa.nulls(2, values.type) for name, values in columns.items()}
    assert baseline_of(missing, signature, "request") == Baseline(nothing, zero, 2, "request")


def test_outputs_of_a_number_or_of_one_for_each_class() -> None:
    outputs = {
        "a": FieldSpec("float32"), "b": FieldSpec("bfloat16", (3,)), "c": FieldSpec("string"), "d": FieldSpec("bool"),
        "e": FieldSpec("float32", (2, 2)), "f": FieldSpec("list<int64>"), "g": FieldSpec("complex64"),
    }  # fmt: skip
    assert explained_outputs(Signature({}, outputs)) == ["a", "b", "d"]


# --- others do not wait ---


def loaded(predict: Callable[[Mapping[str, Any], int], Any]) -> LoadedVersion:
    """A version of one input that predicts so."""
    described = Described("m", 1, {"predict": Signature({"x": FieldSpec("float64")}, {"y": FieldSpec("float64")})})
    return cast(LoadedVersion, SimpleNamespace(described=described, predictors={"predict": predict}))


REQUEST = ExplanationRequest("predict", {"x": [2.0]}, {"x": [1.0]}, "y", 4)


def twice(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    return {"y": 2 * np.array([float(each) for each in pa.array(columns["x"]).to_pylist()])}


def test_the_loop_goes_on_meanwhile_and_few_may_wait() -> None:
    """The model's thread waits for the loop: were the loop to wait for it, neither would ever end."""
    goes_on = threading.Event()
    most: list[int] = []

    def predict(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        assert goes_on.wait(20), "the loop waits"
        most.append(rows)
        return twice(columns, rows)

    async def work() -> None:
        explainer = RowExplainer()
        version = loaded(predict)
        running = [asyncio.create_task(explainer.explain(REQUEST, version, 20.0)) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError, match="other explanations wait") as refused:
            await explainer.explain(REQUEST, version, 20.0)
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
        goes_on.set()
        for answer in await asyncio.gather(*running):
            assert answer["inputs"][0]["attribution"] == pytest.approx(2.0)
        assert (await explainer.explain(REQUEST, version, 20.0))["prediction"] == 4.0
        explainer.close()

    asyncio.run(work())
    assert max(most) <= 512


def test_one_that_takes_too_long_is_given_up_and_asks_no_more() -> None:
    goes_on = threading.Event()
    calls: list[int] = []

    def predict(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        calls.append(rows)
        assert goes_on.wait(20)
        return twice(columns, rows)

    async def work() -> None:
        explainer = RowExplainer()
        version = loaded(predict)
        with pytest.raises(RequestError, match="ask for fewer steps") as late:
            await explainer.explain(REQUEST, version, 0.05)
        assert late.value.code is StatusCode.DEADLINE_EXCEEDED
        goes_on.set()
        assert (await explainer.explain(REQUEST, loaded(twice), 20.0))["gap"] == pytest.approx(0.0)
        explainer.close()

    asyncio.run(work())
    assert calls == [1]
