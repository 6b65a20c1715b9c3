"""`doctor`: the machine is described."""

import importlib.metadata
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console import doctor

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def ran(shop: Path, drivetrain: Command, last_json: Read) -> Json:
    return last_json(drivetrain("run", "shop", "--json"))


def payload(shop: Path, ran: Json, node: str) -> Path:
    (items,) = ran["nodes"][node]["outputs"].values()
    return shop.parent / ".drivetrain" / str(items[0]["uri"])


def test_doctor_says_what_is_installed_and_where(
    shop: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_devices", lambda: iter(()))  # importing jax is not what is tested
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
    monkeypatch.setattr(doctor, "_devices", lambda: iter(()))
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "apache-beam" else "1.0")
    answer = last_json(drivetrain("doctor", "--json"))
    beam = next(finding for finding in answer["findings"] if finding["what"] == "extra beam")
    assert beam["state"] == "missing"
    assert "pip install 'drivetrain[beam]'" in beam["text"]
    assert answer["fit"] is True


def test_doctor_is_one_where_the_root_is_broken(
    shop: Path, ran: Json, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_devices", lambda: iter(()))
    shutil.rmtree(payload(shop, ran, "Make"))
    assert "payloads missing: 1" in " ".join(drivetrain("doctor").stdout.split())
    (shop.parent / ".drivetrain" / "metadata.db").write_text("this is not a database, but long enough to be read " * 50)
    result = drivetrain("doctor", "--json")
    assert result.exit_code == 1
    root = next(finding for finding in last_json(result)["findings"] if finding["what"] == "root")
    assert root["state"] == "bad"


@pytest.mark.engine
def test_doctor_lists_devices_plugins_and_ops(
    tmp_path: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = pytest.importorskip("jax")
    site = tmp_path / "site"
    (site / "acme-1.2.dist-info").mkdir(parents=True)
    (site / "acme-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    (site / "acme-1.2.dist-info" / "entry_points.txt").write_text(
        "[jax_plugins]\nnpu = acme_plugin\n[drivetrain.ops]\nacme = acme_ops.all\n"
    )
    (site / "acme_ops").mkdir()
    monkeypatch.syspath_prepend(str(site))
    found = {each.what: (each.state, each.text) for each in doctor._devices()}
    assert importlib.metadata.version("jaxlib") in found["jaxlib"][1]
    for device in jax.devices():
        state, text = found[f"device {device.platform}:{device.id}"]
        assert state == "ok"
        assert text.startswith(f"{device.device_kind}, ")
        assert "GiB" in text
    assert found["PJRT plugin npu"] == ("bad", "acme 1.2: its module is missing")
    assert found["ops of acme"] == ("ok", "acme 1.2")
    monkeypatch.chdir(tmp_path)
    result = drivetrain("doctor", "--json")
    assert result.exit_code == 1
    assert {"what": "ops of acme", "state": "ok", "text": "acme 1.2"} in last_json(result)["findings"]
