"""`schema infer`: what statistics propose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_infer_prints_what_the_statistics_propose(look: Path, drivetrain: Command, last_json: Read) -> None:
    text = drivetrain("schema", "infer").stdout
    features = yaml.safe_load(text)["features"]
    assert list(features) == ["carrier", "delay"]
    assert last_json(drivetrain("schema", "infer", "--json"))["schema"].strip() == text.strip()
    wrong = drivetrain("schema", "infer", "--split", "eval")
    assert wrong.exit_code == 2
    assert "train" in wrong.stderr


def test_infer_has_the_options_of_the_library(look: Path, drivetrain: Command) -> None:
    features = yaml.safe_load(drivetrain("schema", "infer", "--max-values", "1", "--no-shapes").stdout)["features"]
    assert "domain" not in features["carrier"]
    assert features["carrier"]["value_count"] == {"min": 1, "max": 1}
    for option, message in (
        (("--max-values", "-1"), "-1 is not in the range x>=0"),
        (("--max-values", "many"), "'many' is not a valid integer"),
        (("--slack", "inf"), "is not in the range"),
        (("--split", "trian"), "did you mean 'train'?"),
        (("--max-value", "9"), "Did you mean"),
    ):
        wrong = drivetrain("schema", "infer", *option)
        assert wrong.exit_code == 2
        assert message in wrong.stderr


def test_infer_with_slack(with_schema: Path, drivetrain: Command) -> None:
    assert drivetrain("run", "look").exit_code == 0
    text = drivetrain("schema", "infer", "--slack", "0.1").stdout
    assert yaml.safe_load(text)["features"]["delay"]["domain"] == {
        "range": {"min": -4.25, "max": 10.75, "disallow_nan": True}
    }
    assert "range" not in drivetrain("schema", "infer").stdout


def test_infer_from_data_that_no_run_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drivetrain: Command, last_json: Read
) -> None:
    monkeypatch.chdir(tmp_path)
    for month in (1, 2):
        (tmp_path / f"month-{month}.csv").write_text(f"country,amount\nDE,{month}.5\nFR,2\n")
    inferred = drivetrain("schema", "infer", "month-1.csv", "--slack", "0.1")
    assert inferred.exit_code == 0, inferred.output
    features = yaml.safe_load(inferred.stdout)["features"]
    assert features["country"]["domain"] == {"values": ["DE", "FR"]}
    assert "range" in features["amount"]["domain"]
    assert "all 4 rows" in last_json(drivetrain("schema", "infer", "month-*.csv", "--json"))["schema"]
    for arguments, message in ((("month-3.csv",), "month-3.csv"), (("month-1.csv", "--run", "x"), "either DATA or")):
        wrong = drivetrain("schema", "infer", *arguments)
        assert wrong.exit_code == 2
        assert message in wrong.stderr
