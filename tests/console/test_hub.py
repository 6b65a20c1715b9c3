"""`hub list`, `show`, `verify` and `clean`, on a folder that the library published to."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

pytest.importorskip("jax")

from drivetrain import hub

pytestmark = pytest.mark.engine

Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "twice"
    module = hub.module(lambda params, x: x * params, np.float32(2), np.zeros((2, 3), np.float32))
    hub.save(module, folder)
    hub.save(module, folder, card=hub.ModelCard("twice", "Doubles [b]numbers[/b].", "CC0-1.0", metrics={"error": 0}))
    return folder


def test_list(published: Path, drivetrain: Command, last_json: Read, tmp_path: Path) -> None:
    said = last_json(drivetrain("hub", "list", str(published), "--json"))
    assert [(one["version"], one["card"]["name"]) for one in said["versions"]] == [(1, ""), (2, "twice")]
    assert [one["digest"] for one in said["versions"]] == [one.digest for one in hub.versions(published)]
    assert "twice" in drivetrain("hub", "list", str(published)).stdout
    assert "nothing is published here" in drivetrain("hub", "list", str(tmp_path)).stdout


def test_show(published: Path, drivetrain: Command, last_json: Read) -> None:
    said = last_json(drivetrain("hub", "show", str(published), "--json"))
    assert said["version"] == 2
    assert said["signatures"] == ["call(inputs: float32[3]) -> output: float32[3]"]
    assert "README.md" in [name for name, _, _ in said["files"]]
    text = drivetrain("hub", "show", str(published), "--version", "2").stdout
    for part in ("version 2, digest", "# twice", "Doubles [b]numbers[/b].", "- error: 0", "graph.json"):
        assert part in text
    missing = drivetrain("hub", "show", str(published), "--version", "9")
    assert missing.exit_code == 2
    assert "has no version 9" in missing.stderr


def test_verify(published: Path, drivetrain: Command, last_json: Read, tmp_path: Path) -> None:
    good = drivetrain("hub", "verify", str(published), "--json")
    assert (good.exit_code, last_json(good)["whole"]) == (0, True)
    assert (
        "signature call: ran on a row of zeros" in drivetrain("hub", "verify", str(published), "--version", "2").stdout
    )
    weights = published / "1" / "weights" / "params.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    bad = drivetrain("hub", "verify", str(published), "--version", "1")
    weights.write_bytes(whole)
    assert bad.exit_code == 1
    assert "does not match its digest" in bad.stdout


def test_clean(published: Path, drivetrain: Command, last_json: Read, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(published, folder)
    left, half = folder / f".incoming-{'a' * 16}", folder / f".3.json.{'c' * 8}.tmp"
    left.mkdir()
    half.write_bytes(b"{")
    assert drivetrain("hub", "clean", str(folder), "--older-than", "soon").exit_code == 2
    said = last_json(drivetrain("hub", "clean", str(folder), "--dry-run", "--json"))
    assert (said["dry_run"], said["removed"]) == (True, [half.name, left.name])
    assert "would remove .3.json." in drivetrain("hub", "clean", str(folder), "--dry-run").stdout
    assert left.exists()
    assert half.exists()
    said = last_json(drivetrain("hub", "clean", str(folder), "--older-than", "12h", "--json"))
    assert said["removed"] == [half.name, left.name]
    assert not left.exists()
    assert not half.exists()
    assert "nothing to remove" in drivetrain("hub", "clean", str(folder)).stdout
    assert [one.number for one in hub.versions(folder)] == [1, 2]
