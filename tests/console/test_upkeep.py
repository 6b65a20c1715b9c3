"""`fsck` and `doctor`: damage is found and repaired, the machine is described."""

import importlib.metadata
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console import upkeep

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def ran(shop: Path, drivetrain: Command, last_json: Read) -> Json:
    return last_json(drivetrain("run", "shop", "--json"))


def payload(shop: Path, ran: Json, node: str) -> Path:
    (items,) = ran["nodes"][node]["outputs"].values()
    return shop.parent / ".drivetrain" / str(items[0]["uri"])


def test_fsck_is_clean_after_a_run(ran: Json, drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("fsck").exit_code == 0
    answer = last_json(drivetrain("fsck", "--json"))
    assert answer["clean"] is True
    assert answer["checked"] == 5


def test_fsck_finds_damage_and_repair_lets_the_next_run_mend_it(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read
) -> None:
    rows = payload(shop, ran, "Make") / "content" / "rows"
    rows.chmod(0o644)
    rows.write_text("4")
    shutil.rmtree(payload(shop, ran, "Judge"))
    found = drivetrain("fsck")
    assert found.exit_code == 1
    assert "payload changed" in found.stdout
    assert "payload missing" in found.stdout
    assert "--repair" in found.stdout
    assert drivetrain("fsck", "--repair").exit_code == 0
    again = last_json(drivetrain("run", "shop", "--json"))
    assert again["nodes"]["Make"]["state"] == again["nodes"]["Judge"]["state"] == "COMPLETE"
    # Made anew with the same content, so what stands between is still the same work.
    assert again["nodes"]["Train"]["state"] == "CACHED"
    assert last_json(drivetrain("fsck", "--json"))["missing"] == []


def test_doctor_says_what_is_installed_and_where(
    shop: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_devices", lambda: iter(()))  # importing jax is not what is tested
    answer = last_json(drivetrain("doctor", "--json"))
    assert answer["fit"] is True
    found = {finding["what"]: finding for finding in answer["findings"]}
    assert found["pyarrow"]["text"] == importlib.metadata.version("pyarrow")
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = declared["optional-dependencies"].keys() - {"all"}
    assert {what.removeprefix("extra ") for what in found if what.startswith("extra ")} == extras
    assert all(found[re.split("[<>]", name)[0]]["state"] == "ok" for name in declared["dependencies"])
    assert str(shop.parent / ".drivetrain") in found["root"]["text"]
    assert "GiB free" in found["disk"]["text"]
    assert drivetrain("doctor").exit_code == 0


def test_doctor_names_the_extra_that_is_missing(
    shop: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_devices", lambda: iter(()))
    monkeypatch.setattr(upkeep, "_version", lambda name: None if name == "apache-beam" else "1.0")
    answer = last_json(drivetrain("doctor", "--json"))
    beam = next(finding for finding in answer["findings"] if finding["what"] == "extra beam")
    assert beam["state"] == "missing"
    assert "pip install 'drivetrain[beam]'" in beam["text"]
    assert answer["fit"] is True


def test_doctor_is_one_where_the_root_is_broken(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_devices", lambda: iter(()))
    shutil.rmtree(payload(shop, ran, "Make"))
    assert "payloads missing: 1" in " ".join(drivetrain("doctor").stdout.split())
    (shop.parent / ".drivetrain" / "metadata.db").write_text("this is no database, but long enough to be read " * 50)
    result = drivetrain("doctor", "--json")
    assert result.exit_code == 1
    root = next(finding for finding in last_json(result)["findings"] if finding["what"] == "root")
    assert root["state"] == "bad"
