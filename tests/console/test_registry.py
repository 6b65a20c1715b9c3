"""`registry`: models registered, approved and moved from the shell; a version's whole story; its card."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.model_card import model_card
from drivetrain.report.model_card import render

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]

VALIDATION: Json = {
    "blessed": True,
    "thresholds": [
        {
            "slice": "carrier=AA", "key": "k", "metric": "auc", "n": 9, "value": 0.91, "baseline": None, "passed": True,
            "interval": [0.89, 0.93], "text": "auc of carrier=AA: 0.91 is at least 0.8",
        }
    ],
}  # fmt: skip


@pytest.fixture
def registered(two_runs: tuple[Json, Json], drivetrain: Command, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two versions of `shop`, of two runs which `ada` started; gives the runs' ids."""
    first, second = (run["run"] for run in two_runs)
    for run in (first, second):
        result = drivetrain("registry", "register", "shop", "--run", run, "--by", "ada", "--reason", "nightly")
        assert result.exit_code == 0, result.output
    return first, second


def ok(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    return result.stderr


def test_versions_and_aliases(registered: tuple[str, str], drivetrain: Command, last_json: Read) -> None:
    assert "shop  2 versions" in ok(drivetrain("registry", "list"))
    assert ok(drivetrain("registry", "alias", "shop", "champion", "1", "--by", "ada")) == "shop@1 is champion\n"
    assert "stands for version 1, not for no version" in refused(
        drivetrain("registry", "alias", "shop", "champion", "2", "--expected", "0")
    )
    ok(
        drivetrain(
            "registry", "alias", "shop", "champion", "latest", "--expected", "1", "--by", "bob", "--reason", "ok"
        )
    )
    answer = last_json(drivetrain("registry", "show", "shop", "--json"))
    assert answer["aliases"] == {"champion": 2}
    assert [(each["version"], each["by"], each["aliases"]) for each in answer["versions"]] == [
        (1, "ada", []),
        (2, "ada", ["champion"]),
    ]
    assert "  2 [champion]  " in ok(drivetrain("registry", "show", "shop"))
    story = ok(drivetrain("registry", "story", "shop")).splitlines()
    assert [line.partition(" UTC  ")[2] for line in story] == [
        "version 1 registered by ada: nightly",
        "version 2 registered by ada: nightly",
        "champion moved to version 1 by ada",
        "champion moved to version 2 from version 1 by bob: ok",
    ]
    assert last_json(drivetrain("registry", "story", "shop", "--json"))["log"][3]["before"] == 1
    assert ok(drivetrain("registry", "alias", "shop", "champion", "--remove")) == "no version is champion\n"
    assert "no alias 'champion'" in refused(drivetrain("registry", "show", "shop@champion"))


def test_approvals(registered: tuple[str, str], drivetrain: Command, last_json: Read) -> None:
    ok(drivetrain("registry", "require", "shop", "champion", "--approvals", "2", "--days", "30", "--by", "kim"))
    message = refused(drivetrain("registry", "alias", "shop", "champion", "1"))
    assert "2 approvals of 2 missing" in message
    assert "fix: `drivetrain registry approve shop@1`" in message
    assert "ada made it" in refused(drivetrain("registry", "approve", "shop@1", "--by", "ada"))
    text = ok(drivetrain("registry", "approve", "shop@1", "--by", "bob", "--comment", "read it"))
    assert "champion may not move to it yet: 1 approval of 2 missing; approved by bob" in text
    ok(drivetrain("registry", "reject", "shop@1", "--by", "eve", "--comment", "see issue 412"))
    assert "rejected by eve: see issue 412" in refused(drivetrain("registry", "alias", "shop", "champion", "1"))
    answer = last_json(drivetrain("registry", "approve", "shop@1", "--by", "eve", "--json"))
    assert answer["rules"]["champion"]["approved"] is True
    ok(drivetrain("registry", "alias", "shop", "champion", "1", "--by", "ada"))
    page = ok(drivetrain("registry", "show", "shop@champion"))
    for line in ("version 1 approved by bob: read it", "version 1 rejected by eve", "champion moved to version 1"):
        assert line in page
    ok(drivetrain("registry", "require", "shop", "champion", "--nothing"))
    assert last_json(drivetrain("registry", "show", "shop", "--json"))["rules"] == {}


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def text_of(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    return " ".join(parser.text)


def test_a_version_on_one_page(
    registered: tuple[str, str], drivetrain: Command, last_json: Read, tmp_path: Path
) -> None:
    ok(drivetrain("registry", "describe", "shop@1", "--description", "Of <b>May</b>.", "--tag", "team=ops"))
    ok(drivetrain("registry", "alias", "shop", "champion", "1", "--by", "ada"))
    evaluation = next(Path(".drivetrain").glob("artifacts/Judge/*/evaluation/content"))
    evaluation.chmod(evaluation.stat().st_mode | stat.S_IWUSR)
    for folder in Path(".drivetrain").glob("artifacts/Judge/*/evaluation/content"):
        folder.chmod(0o755)
        (folder / "validation.json").write_text(json.dumps(VALIDATION))
    version = last_json(drivetrain("registry", "show", "shop@1", "--html", "version.html", "--json"))
    assert (version["name"], version["aliases"], version["state"]) == ("shop@1", ["champion"], "LIVE")
    assert version["model"]["run"] == registered[0]
    assert [each["node"] for each in version["code"]] == ["Make", "Train"]
    assert [(each["span"], each["rows"]) for each in version["data"]] == [(0, {"train": 3})]
    assert [(each["destination"], each["version"]) for each in version["pushed"]] == [("serving/shop", 2)]
    (judged,) = version["evaluations"]
    assert (judged["blessed"], judged["thresholds"][0]["value"]) == (True, 0.91)
    shown, page = ok(drivetrain("registry", "show", "shop@1")), text_of(Path("version.html").read_text())
    for words in ("shop@1", "nightly", registered[0], "AUC 0.9; blessed", "0.91 is at least 0.8", "serving/shop"):
        assert words in shown, words
        assert words in page, words
    for digest in (version["code"][0]["digest"], version["data"][0]["fingerprint"]):
        assert digest[:12] in shown
        assert digest in page
    assert "Of <b>May</b>." in page
    assert "<b>May" not in Path("version.html").read_text()
    card = json.loads(ok(drivetrain("registry", "card", "shop@champion", "--html", "card.html")))
    assert card["model_details"]["version"] == {
        "name": "1",
        "date": version["registered"]["at"][:10],
        "diff": "nightly",
    }
    assert card["quantitative_analysis"]["performance_metrics"] == [
        {
            "type": "auc", "slice": "carrier=AA", "value": 0.91, "threshold": VALIDATION["thresholds"][0]["text"],
            "confidence_interval": {"lower_bound": 0.89, "upper_bound": 0.93},
        }
    ]  # fmt: skip
    assert "carrier=AA" in text_of(Path("card.html").read_text())


def test_words_of_a_person_stand_before_what_is_known(
    registered: tuple[str, str], drivetrain: Command, tmp_path: Path
) -> None:
    words = tmp_path / "card.yaml"
    words.write_text(
        "model_details:\n  licenses: [{identifier: Apache-2.0}]\n  owners: [{name: Operations, contact: ops@x.org}]\n"
        "considerations:\n  limitations: [{description: Not for cargo.}]\n"
        "  ethical_considerations: [{name: Small airports, mitigation_strategy: judged by slice}]\n"
    )
    card = json.loads(ok(drivetrain("registry", "card", "shop", "--words", str(words), "--html", "card.html")))
    assert card["model_details"]["owners"] == [{"name": "Operations", "contact": "ops@x.org"}]
    assert card["model_details"]["name"] == "shop"
    assert card["considerations"]["limitations"] == [{"description": "Not for cargo."}]
    page = text_of(Path("card.html").read_text())
    for said in ("Apache-2.0", "Operations ops@x.org", "Not for cargo.", "Small airports", "judged by slice"):
        assert said in page
    for wrong, says in (
        ("model: {}", "not a model card's section"),
        ("considerations: {risks: []}", "no field 'risks'"),
        ("[1]", "not part of a model card"),
        ("a: [", "not YAML"),
    ):
        words.write_text(wrong)
        assert says in refused(drivetrain("registry", "card", "shop", "--words", str(words))), wrong


FIELDS: dict[str, dict[str, Any]] = {
    "model_details": {
        "name": str, "overview": str, "documentation": str, "owners": list, "version": dict, "licenses": list,
        "references": list, "citations": list,
    },
    "model_parameters": {"model_architecture": str, "data": list, "input_format": str, "output_format": str},
    "quantitative_analysis": {"performance_metrics": list, "graphics": dict},
    "considerations": {
        "users": list, "use_cases": list, "limitations": list, "tradeoffs": list, "ethical_considerations": list,
    },
}  # fmt: skip
"""Model Card Toolkit's schema 0.0.2, as published: sections, their fields and the types of these."""


def test_a_card_has_the_fields_of_model_card_toolkit(
    registered: tuple[str, str], drivetrain: Command, last_json: Read
) -> None:
    card = last_json(drivetrain("registry", "card", "shop", "--json"))
    assert card.pop("schema_version") == "0.0.2"
    assert card.keys() == FIELDS.keys()
    for section, fields in card.items():
        for name, value in fields.items():
            assert isinstance(value, FIELDS[section][name]), (section, name)
    for metric in card["quantitative_analysis"]["performance_metrics"]:
        assert isinstance(metric["type"], str)
        assert isinstance(metric["value"], float)
    assert all(isinstance(each["name"], str) for each in card["model_parameters"]["data"])


def test_a_card_of_a_bundle_says_what_goes_in_and_comes_out() -> None:
    version = {
        "name": "shop@1", "description": "", "model_description": "Sales.", "data": [], "evaluations": [],
        "registered": {"by": "ada", "at": "2026-11-28T10:00:00+00:00", "why": ""},
    }  # fmt: skip
    sides = {
        "inputs": [("x", {"dtype": "float32", "shape": [16]})],
        "outputs": [("p", {"dtype": "float32", "shape": []})],
    }
    card = model_card(version, {"predict": sides}, {})
    assert card["model_parameters"]["input_format"] == "predict: x: float32[16]"
    assert card["model_parameters"]["output_format"] == "predict: p: float32"
    assert "Sales." in text_of(render(card))


def test_a_card_has_each_metric_once() -> None:
    """Two thresholds of one metric over all examples are the metric's; an older evaluation is not the card's."""
    checks = [
        {"metric": "auc", "slice": "overall", "value": 0.9, "text": "at least 0.8", "passed": True},
        {"metric": "auc", "slice": "overall", "value": 0.9, "text": "no worse", "passed": None},
        {"metric": "auc", "slice": "carrier=AA", "value": 0.7, "text": "at least 0.6", "passed": True},
        {"metric": "auc", "slice": "carrier=UA", "value": None, "text": "too few", "passed": None},
    ]
    older = {"metrics": {"auc": 0.1}, "thresholds": []}
    version = {
        "name": "shop@1", "description": "", "model_description": "", "data": [],
        "registered": {"by": "ada", "at": "2026-11-28T10:00:00+00:00", "why": ""},
        "evaluations": [older, {"metrics": {"auc": 0.9, "loss": None}, "thresholds": checks}],
    }  # fmt: skip
    assert model_card(version, {}, {})["quantitative_analysis"]["performance_metrics"] == [
        {"type": "auc", "value": 0.9, "threshold": "at least 0.8; no worse"},
        {"type": "auc", "value": 0.7, "slice": "carrier=AA", "threshold": "at least 0.6"},
    ]


def test_what_can_be_registered(two_runs: tuple[Json, Json], drivetrain: Command, last_json: Read) -> None:
    uri = last_json(drivetrain("registry", "register", "shop", "--json"))["uri"]  # of the newest run
    model = next(record for record in two_runs[1]["nodes"]["Train"]["outputs"]["model"])
    assert uri == model["uri"]
    same = last_json(drivetrain("registry", "register", "shop", model["fingerprint"][:12], "--json"))
    assert same["version"] == 1
    receipt = next(iter(two_runs[0]["nodes"]["Push"]["outputs"].values()))[0]
    pushed = last_json(drivetrain("registry", "register", "shop", receipt["uri"], "--alias", "live", "--json"))
    assert (pushed["version"], pushed["uri"]) == (2, two_runs[0]["nodes"]["Train"]["outputs"]["model"][0]["uri"])
    assert "shop@2" in ok(drivetrain("registry", "show", "shop@live"))
    assert "is not an artifact" in refused(drivetrain("registry", "register", "shop", "nothing"))
    assert "cannot be the name" in refused(drivetrain("registry", "register", "a/b"))
    examples = two_runs[0]["nodes"]["Make"]["outputs"]["examples"][0]["uri"]
    assert "is not a model" in refused(drivetrain("registry", "register", "shop", examples))


@pytest.mark.parametrize(
    "arguments",
    [
        ("alias", "shop", "champion"),
        ("alias", "shop", "champion", "1", "--remove"),
        ("require", "shop", "champion"),
        ("require", "shop", "champion", "--approvals", "1", "--nothing"),
        ("describe", "shop"),
        ("register", "shop", "x", "--run", "y"),
        ("alias", "shop", "latest", "1"),
        ("alias", "shop", "champion", "3"),
        ("show", "nothing"),
        ("show", "shop@9"),
        ("story", "nothing"),
        ("approve", "shop@x"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done(registered: tuple[str, str], drivetrain: Command, arguments: tuple[str, ...]) -> None:
    assert drivetrain("registry", *arguments).exit_code == 2


def test_nothing_is_registered(shop: Path, drivetrain: Command, last_json: Read) -> None:
    ok(drivetrain("run", "shop"))
    assert "no models are registered" in ok(drivetrain("registry", "list"))
    assert last_json(drivetrain("registry", "list", "--json")) == {"models": []}


def test_two_shells_at_once(registered: tuple[str, str]) -> None:
    """One wins, and the other is told so: both saw that nothing was champion."""
    command = [sys.executable, "-m", "drivetrain", "registry", "alias", "shop", "champion", "--expected", "0"]
    shells = [
        subprocess.Popen([*command, number], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
        for number in ("1", "2")
    ]
    ends = [(*shell.communicate(timeout=120), shell.returncode) for shell in shells]
    assert sorted(code for *_, code in ends) == [0, 2]
    (errors,) = (error for _, error, code in ends if code)
    assert "champion of shop stands for version" in errors
