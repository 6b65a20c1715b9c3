"""`bundle show`, `verify` and `refresh`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

pytest.importorskip("jax")

import jax
from drivetrain.engine import Bundle
from drivetrain.tests.engine.bundles.resealing import reseal
from drivetrain.tests.fixtures.bundles.make import build

pytestmark = pytest.mark.engine

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "made"
    build(folder)
    return folder / "model"


def test_show_prints_what_a_bundle_is(model: Path, drivetrain: Command, last_json: Read) -> None:
    said = last_json(drivetrain("bundle", "show", str(model), "--json"))
    manifest = json.loads((model / "manifest.json").read_bytes())
    assert {key: said[key] for key in manifest} == manifest
    text = drivetrain("bundle", "show", str(model)).stdout
    for part in (
        f"digest {manifest['digest'][:12]}",
        f"exported by JAX {jax.__version__} for cpu, cuda, tpu",
        "in  hour: int64 = 12",
        "in  origin: string = None",
        "out  pair: float32[2]",
        "1 × lookup",
        "6 × dot_general",
    ):
        assert part in text, part
    for name, size, checksum in manifest["files"]:
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
        assert line.split()[1:] == [f"{size:,}", checksum[:12]]


def test_show_writes_a_page(model: Path, tmp_path: Path, drivetrain: Command, last_json: Read) -> None:
    page = tmp_path / "model.html"
    said = last_json(drivetrain("bundle", "show", str(model), "--html", str(page), "--json"))
    assert said["html"] == str(page)
    nowhere = drivetrain("bundle", "show", str(model), "--html", str(tmp_path / "nowhere" / "model.html"))
    assert (nowhere.exit_code, "model.html cannot be written" in nowhere.stderr) == (2, True)
    text = page.read_text("utf-8")
    assert text == Bundle.load(model).to_html()
    assert text.count("<svg") == 1
    for name in ("hour", "origin", "pair", "lookup"):
        assert f">{name}<" in text


def test_verify_finds_what_is_wrong(model: Path, tmp_path: Path, drivetrain: Command, last_json: Read) -> None:
    good = last_json(drivetrain("bundle", "verify", str(model), "--json"))
    assert good["whole"] is True
    assert good["checks"][0]["what"] == "files"
    ran = {check["what"]: check["text"] for check in good["checks"]}
    assert ran["signature predict"] == ran["signature evaluate"] == "ran, as a batch and as a row"
    size = sum(file.stat().st_size for file in model.rglob("*") if file.is_file())
    assert ran["files"] == f"7 files, {size:,} bytes, each as its digest says"

    changed = shutil.copytree(model, tmp_path / "changed")
    (weights,) = changed.glob("weights/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    result = drivetrain("bundle", "verify", str(changed))
    assert result.exit_code == 1
    assert "bad files:" in result.stdout
    assert "weights/model.safetensors does not match its digest" in result.stdout

    (program,) = changed.glob("device/*.stablehlo")
    shutil.rmtree(changed)
    shutil.copytree(model, changed)
    program.write_bytes(program.read_bytes()[:2000])
    reseal(changed)
    answer = last_json(drivetrain("bundle", "verify", str(changed), "--json"))
    assert [check["what"] for check in answer["checks"] if not check["ok"]] == [
        f"program {program.stem}",
        "signature predict",
        "signature evaluate",
    ]

    shutil.copytree(model, tmp_path / "other")
    portable = tmp_path / "other" / "device" / f"{program.stem}.mlirbc"
    portable.write_bytes(portable.read_bytes() + b"\x00")
    reseal(tmp_path / "other")
    assert (
        "another program than the .stablehlo beside it"
        in drivetrain("bundle", "verify", str(tmp_path / "other")).stdout
    )

    assert drivetrain("bundle", "verify", str(tmp_path)).exit_code == 2


@pytest.mark.slow
def test_verify_calls_ok_only_a_signature_that_it_checked(model: Path, tmp_path: Path, drivetrain: Command) -> None:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    folder, private, public = shutil.copytree(model, tmp_path / "model"), tmp_path / "key.pem", tmp_path / "pub.pem"
    key = generate_private_key(SECP256R1())
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    verify = ("bundle", "verify", str(folder))
    unsigned = drivetrain(*verify, "--public-key", str(public))
    assert (unsigned.exit_code, unsigned.stdout.partition(":")[0]) == (0, "--  signed")
    assert "is not signed" in unsigned.stdout
    assert drivetrain("bundle", "sign", str(folder), "--key", str(private)).exit_code == 0
    assert drivetrain(*verify).stdout.startswith("--  signed: ")
    assert drivetrain(*verify, "--public-key", str(public)).stdout.startswith("ok  signed: by the key of")


@pytest.mark.slow
def test_refresh_says_what_it_did(model: Path, tmp_path: Path, drivetrain: Command, last_json: Read) -> None:
    old = shutil.copytree(model, tmp_path / "old")
    manifest = json.loads((old / "manifest.json").read_bytes())
    manifest["export"]["jax"] = "0.9.9"
    (old / "manifest.json").write_text(json.dumps(manifest))
    reseal(old)
    (name,) = manifest["programs"]
    answer = last_json(drivetrain("bundle", "refresh", str(old), str(tmp_path / "new"), "--json"))
    assert answer == {"path": str(tmp_path / "new"), "rewritten": [name], "kept": []}
    assert Bundle.load(tmp_path / "new").export["refreshed_from"]["jax"] == "0.9.9"
    assert "refreshed from" in drivetrain("bundle", "show", str(tmp_path / "new")).stdout
    again = drivetrain("bundle", "refresh", str(tmp_path / "new"), str(tmp_path / "newer"))
    assert f"1 taken over: this JAX wrote them ({name})" in again.stdout
    assert drivetrain("bundle", "refresh", str(old), str(tmp_path / "new")).exit_code == 2
