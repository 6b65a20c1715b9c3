"""`trace`: from answers of a real server up to data and code, and from a span down to models and the request log."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("httptools")

from click.testing import CliRunner, Result
from drivetrain.console.cli import cli
from drivetrain.digest import digest_file
from drivetrain.pipelines import Home, decide, list_runs, waiting_tasks
from drivetrain.tests.serving.bundles import rows_of
from drivetrain.tests.serving.running import serving

pytestmark = pytest.mark.engine

PIPELINE = """
import drivetrain as dt
from drivetrain.components import Approval, BulkInferrer, ExampleGen, Pusher
from drivetrain.metadata import Evaluation, Examples, Model


@dt.component
def Train(examples: Examples, *, seed: int) -> Model:
    from drivetrain.tests.serving.bundles import write_network

    model = Model.new()
    write_network(model.extra / "network", seed, hidden=24)
    model.content.rmdir()
    (model.extra / "network").rename(model.content)
    return model


@dt.component
def Judge(model: Model, baseline: Model | None) -> Evaluation:
    evaluation = Evaluation.new(blessed=True, summary="passed: better by far", metrics={"auc": 0.75})
    (evaluation.content / "validation.json").write_text("{}")
    return evaluation


@dt.pipeline
def net(span: int, seed: int) -> None:
    examples = ExampleGen(dt.files("data/rows-{SPAN:2}.parquet", span=span), splits={"train": 1})
    model = Train(examples, seed=seed)
    evaluation = Judge(model, dt.latest_blessed())
    decision = Approval(evaluation, message="Push this model?")
    with dt.when(decision.approved):
        Pusher(model, destination="served/net")
    BulkInferrer(examples, [model], require_blessing=False)
"""


@dataclass
class Traced:
    """Two runs, an answer of each one's version, and the request log."""

    folder: Path
    answers: dict[int, str]
    predictions: dict[int, str]


def drivetrain(*arguments: str, ok: bool = True) -> Result:
    result = CliRunner().invoke(cli, list(arguments), prog_name="drivetrain")
    assert not ok or result.exit_code == 0, result.output
    return result


def run(folder: Path, span: int, approver: str) -> None:
    """Run the pipeline, and answer its question meanwhile."""

    def answer() -> None:
        deadline = time.monotonic() + 120
        with closing(Home(folder / ".drivetrain")) as home:
            while not (asking := [each for each in list_runs(home) if waiting_tasks(home, each)]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            decide(home, asking[0], "Approval", approved=True, by=approver, comment=f"span {span} is right")

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        drivetrain("run", "net", "-p", f"span={span}", "-p", f"seed={span}")
        answered.result()


def ask(address: str, version: int, patience: float = 0.0) -> tuple[str, str]:
    """What curl -i would print of an answer, and the request's id; a version may come some seconds later."""
    body = json.dumps({"instances": [{"x": [0.5] * 16}]}).encode()
    deadline = time.monotonic() + patience
    while True:
        try:
            answering = urllib.request.urlopen(f"{address}/v1/models/net/versions/{version}:predict", body)
            break
        except urllib.error.HTTPError as error:
            if time.monotonic() > deadline:
                raise
            error.close()
            time.sleep(0.1)
    with answering as answer:
        lines = [f"HTTP/1.1 {answer.status} OK", *(f"{name}: {value}" for name, value in answer.getheaders())]
        return "\r\n".join([*lines, "", answer.read().decode()]), str(answer.headers["x-request-id"])


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DRIVETRAIN_ROOT", raising=False)
        (folder / "net" / "data").mkdir(parents=True)
        (folder / "net" / "__init__.py").touch()
        (folder / "net" / "pipeline.py").write_text(PIPELINE)
        (folder / "pyproject.toml").write_text('[project]\nname = "net"\n')
        (folder / "models.yaml").write_text(
            "models: {net: {base_path: served/net, versions: all, request_log: {folder: log, write_seconds: 0.1}}}\n"
        )
        for span in (1, 2):
            pq.write_table(rows_of(span, 40), folder / "net" / "data" / f"rows-{span:02}.parquet")
            run(folder, span, ("ada", "grace")[span - 1])
        answers, ids = {}, {}
        with serving(folder, "--config", "models.yaml") as server:
            for version in (1, 2):
                answers[version], ids[version] = ask(server.address, version)
            assert server.end() == 0
        yield Traced(folder, answers, ids)


@pytest.fixture(autouse=True)
def in_its_folder(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(traced.folder)
    monkeypatch.delenv("DRIVETRAIN_ROOT", raising=False)


def traced_json(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(drivetrain("trace", *arguments, "--json").stdout)
    return answer


@pytest.mark.parametrize("version", [1, 2])
def test_an_answer_leads_to_its_model_its_data_and_who_approved_it(traced: Traced, version: int) -> None:
    (traced.folder / "answer.txt").write_text(traced.answers[version])
    answer = traced_json("answer.txt")
    manifest = json.loads((traced.folder / "served" / "net" / str(version) / "manifest.json").read_text())
    assert answer["bundle"] == manifest["digest"]
    assert answer["answer"]["version"] == version
    assert answer["answer"]["request_id"] == traced.predictions[version]
    (push,) = answer["pushed"]
    assert (push["destination"], push["version"]) == ("served/net", version)
    record = json.loads((traced.folder / "served" / "net" / f"{version}.json").read_text())
    assert (push["run"], push["digest"]) == (record["run"], record["digest"])
    assert answer["model"]["uri"] == record["model"]
    (evaluation,) = answer["evaluations"]  # the first model is the baseline of the second's evaluation
    assert (evaluation["blessed"], evaluation["metrics"]) == (True, {"auc": 0.75})
    (approval,) = answer["approvals"]
    assert (approval["approved"], approval["by"]) == (True, ("ada", "grace")[version - 1])
    assert [code["node"] for code in answer["code"]] == ["ExampleGen", "Train"]
    assert len({code["digest"] for code in answer["code"]}) == 2
    (span,) = answer["data"]
    assert (span["span"], span["rows"]) == (version, {"train": 40})
    (file,) = span["files"]
    assert file["sha256"] == digest_file(traced.folder / "net" / "data" / f"rows-{version:02}.parquet")


def test_an_answer_leads_to_the_registered_version_and_who_approved_it(traced: Traced) -> None:
    drivetrain("registry", "register", "net", "served/net/1", "--alias", "champion", "--by", "eve")
    drivetrain("registry", "approve", "net@champion", "--by", "kim", "--comment", "fine")
    (traced.folder / "answer.txt").write_text(traced.answers[1])
    (version,) = traced_json("answer.txt")["versions"]
    assert (version["name"], version["aliases"], version["by"]) == ("net@1", ["champion"], "eve")
    text = drivetrain("trace", "answer.txt").stdout
    assert "  registered net@1 [champion] by eve\n" in text
    assert re.search(r"^ {13}approved by kim at .*: fine$", text, re.M)
    (traced.folder / "answer.txt").write_text(traced.answers[2])
    assert traced_json("answer.txt")["versions"] == []


@pytest.mark.slow
def test_while_a_server_lives_its_answers_lead_up_and_a_span_down_to_them(traced: Traced) -> None:
    """Of a registered model, which was never pushed where it is served: the alias moves, and both ways follow."""
    for version in (1, 2):
        drivetrain("registry", "register", "live", f"served/net/{version}", "--by", "eve")
    drivetrain("registry", "alias", "live", "champion", "1", "--by", "eve")
    (traced.folder / "live.yaml").write_text(
        "models: {net: {base_path: 'registered:live@champion', request_log: {folder: live-log, write_seconds: 0.1}}}\n"
    )
    with serving(traced.folder, "--config", "live.yaml", "--config-poll", "0.2") as server:
        for version in (1, 2):
            drivetrain("registry", "alias", "live", "champion", str(version), "--by", "eve")
            answer, request = ask(server.address, version, patience=30)
            (traced.folder / "live.txt").write_text(answer)
            up = traced_json("live.txt")
            assert (up["answer"]["version"], up["answer"]["request_id"]) == (version, request)
            assert [each["span"] for each in up["data"]] == [version]
            assert [code["node"] for code in up["code"]] == ["ExampleGen", "Train"]
            assert [each["by"] for each in up["approvals"]] == [("ada", "grace")[version - 1]]
            assert f"live@{version}" in {each["name"] for each in up["versions"]}
            deadline = time.monotonic() + 60
            while not (files := traced_json("--span", str(version), "--log", "live-log")["models"][0]["log"]):
                assert time.monotonic() < deadline, "the log has nothing of it"
                time.sleep(0.1)
            logged = [each for file in files for each in pq.read_table(file)["request_id"].to_pylist()]
            assert request in logged
            by_request = traced_json(request, "--log", "live-log")
            assert by_request["bundle"] == up["bundle"]
        assert server.end() == 0


def test_every_form_of_an_answer_leads_to_the_same(traced: Traced) -> None:
    (traced.folder / "answer.txt").write_text(traced.answers[2])
    (traced.folder / "verbose.txt").write_text(
        "\n".join(f"< {line}" for line in traced.answers[2].splitlines() if line[:1] != "{")
    )
    whole = traced_json("answer.txt")
    facts = {"predictions": [0.5], "version": 2, "digest": whole["bundle"]}
    (traced.folder / "predicted.json").write_text(json.dumps(facts))
    (traced.folder / "headers.json").write_text(json.dumps({"X-Drivetrain-Digest": whole["bundle"]}, indent=1))
    forms = [
        ["verbose.txt"], ["predicted.json"], ["headers.json"], [whole["bundle"]], [whole["bundle"][:10].upper()],
        ["served/net/2"], ["served/net/2/"], [whole["pushed"][0]["digest"]],
        [traced.predictions[2], "--log", "log"],
    ]  # fmt: skip
    for form in forms:
        answer = traced_json(*form)
        del answer["answer"]
        assert answer == {name: value for name, value in whole.items() if name != "answer"}, form
    text = drivetrain("trace", "answer.txt").stdout
    for words in (
        f"bundle {whole['bundle']} (version 2, request {traced.predictions[2]})",
        "version 2 at served/net", "blessed by Judge: passed: better by far", "approved by grace at Approval",
        "span 2 of ExampleGen: 40 rows", "rows-02.parquet",
    ):  # fmt: skip
        assert words in text


def test_an_id_of_several_words_is_whole(traced: Traced) -> None:
    lines = re.sub(r"(?im)^x-request-id: .*?(\r?)$", r"x-request-id: my request  7 \1", traced.answers[1])
    (traced.folder / "words.txt").write_text(lines, newline="")
    answer = json.loads(drivetrain("trace", "words.txt", "--json").stdout)["answer"]
    assert (answer["request_id"], answer["version"]) == ("my request  7", 1)


def test_a_span_leads_to_models_versions_and_the_request_log(traced: Traced) -> None:
    answer = traced_json("--span", "1", "--log", "log")
    (model,) = answer["models"]
    assert model["blessed"] == [True]
    assert [push["version"] for push in model["pushed"]] == [1]
    (file,) = model["log"]
    assert pq.read_table(file)["request_id"].to_pylist() == [traced.predictions[1]]
    text = drivetrain("trace", "--span", "2", "--log", "log").stdout
    assert "version 2 at served/net" in text
    assert "1 files of predictions" in text


@pytest.mark.parametrize("span", [1, 2])
def test_rows_predicted_in_bulk_lead_to_data_code_and_approval_and_the_span_back_to_them(
    traced: Traced, span: int
) -> None:
    down = traced_json("--span", str(span))
    (predictions,) = down["predictions"]
    assert predictions["models"] == [model["uri"] for model in down["models"]]
    # From a row, in the file where it stands, up.
    (file, *_) = sorted((traced.folder / ".drivetrain" / predictions["uri"]).rglob("*.parquet"))
    assert pq.read_table(file).num_rows > 0
    for answer in (str(file), predictions["uri"]):
        up = traced_json(answer)
        assert up["predictions"] == predictions
        (model,) = up["models"]
        assert [each["span"] for each in up["predicted"]] == [each["span"] for each in model["data"]] == [span]
        assert [each["by"] for each in model["approvals"]] == [("ada", "grace")[span - 1]]
        assert any(code["node"] == "Train" and re.fullmatch("[0-9a-f]{64}", code["digest"]) for code in model["code"])
        (read,) = model["data"][0]["files"]
        assert read["sha256"] == digest_file(traced.folder / "net" / "data" / f"rows-{span:02}.parquet")
    text = drivetrain("trace", str(file)).stdout
    assert f"predictions {predictions['uri']}, made by BulkInferrer" in text
    assert f"of         span {span}, " in text
    assert "approved by " in text
    assert (
        f"bulk       predictions {predictions['uri']}, made by BulkInferrer"
        in drivetrain("trace", "--span", str(span)).stdout
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["0123456789abcdef"], r"no bundle in .* has the digest 0123456789abcdef"),
        (["nothing"], "not a file, a digest, or a version that was pushed"),
        (["nothing", "--log", "log"], "and no request of that id is in log"),
        (["0123456789abcdef", "--log", "log"], r"and no request of that id is in log\n.*for a minute before it is in"),
        (["models.yaml"], "models.yaml does not say which bundle answered: it has no x-drivetrain-digest"),
        (["--span", "9"], r"no data of span 9 is in .*\n.*1 to 2"),
        ([], "trace needs an ANSWER, or --span"),
        (["ab", "--span", "1"], "trace needs an ANSWER, or --span"),
    ],
)
def test_what_cannot_be_traced(traced: Traced, arguments: list[str], words: str) -> None:
    result = drivetrain("trace", *arguments, ok=False)
    assert result.exit_code == 2
    assert re.search(words, result.output), result.output


def test_a_log_that_is_none_is_named(traced: Traced) -> None:
    (traced.folder / "elsewhere").mkdir()
    pq.write_table(rows_of(1, 1), traced.folder / "elsewhere" / "rows.parquet")
    result = drivetrain("trace", "some-request", "--log", "elsewhere", ok=False)
    assert result.exit_code == 2
    assert "rows.parquet is not a file of a request log" in result.output
