"""Signatures of bundles: of the right key and the same files, or refused; in the form that model-signing writes."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("cryptography")

from drivetrain import data, hub
from drivetrain.components.pusher import push
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, BundleError, analyze, ops, sign_bundle, verify_bundle
from drivetrain.engine.bundles.signing import signature_path
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal

pytestmark = pytest.mark.engine

THEIRS = Path(__file__).parents[2] / "fixtures" / "signed"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of key pairs that OpenSSL made."""
    folder = tmp_path_factory.mktemp("keys")
    for name, curve in (("mine", "prime256v1"), ("other", "prime256v1"), ("weak", "secp224r1")):
        for command in (
            f"ecparam -name {curve} -genkey -noout -out {name}.pem",
            f"ec -in {name}.pem -pubout -out {name}.pub",
        ):
            subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signing") / "bundle"
    source = data.source_of(pa.table({"x": [1.0, 2.0]}))
    analyze(lambda columns: {"x": ops.fill_missing(columns["x"], 0.0)}, source, data.LocalExecutor()).save(folder)
    return folder


@pytest.fixture
def signed(unsigned: Path, tmp_path: Path, keys: Path) -> Path:
    folder = shutil.copytree(unsigned, tmp_path / "bundle")
    assert sign_bundle(folder, keys / "mine.pem") == signature_path(folder) == tmp_path / "bundle.sig"
    return folder


def refused(folder: Path, key: Path, says: str) -> None:
    for isolated in (False, True):
        with pytest.raises(BundleError, match=says):
            Bundle.load(folder, isolated=isolated, public_key=key)
    (check,) = verify_bundle(folder, public_key=key, require_signed=True)
    assert not check.ok
    assert check.what == "signed"


def test_a_signature_changes_no_digest_and_is_verified(unsigned: Path, signed: Path, keys: Path) -> None:
    assert digest_tree(signed) == digest_tree(unsigned)
    assert Bundle.load(signed, public_key=keys / "mine.pub").signatures
    checks = verify_bundle(signed, public_key=keys / "mine.pub", require_signed=True)
    assert all(check.ok for check in checks)
    assert (checks[0].what, checks[0].checked) == ("signed", True)
    sign_bundle(signed, keys / "other.pem")  # replaces it
    assert Bundle.load(signed, public_key=keys / "other.pub").signatures


@pytest.mark.parametrize("publish", [push, hub.save])
def test_what_is_pushed_keeps_its_signature(
    signed: Path, tmp_path: Path, keys: Path, publish: Callable[[Path, Path], object]
) -> None:
    publish(signed, tmp_path / "serving")
    assert Bundle.load(tmp_path / "serving" / "1", public_key=keys / "mine.pub").signatures
    sign_bundle(signed, keys / "other.pem")
    publish(signed, tmp_path / "serving")
    assert Bundle.load(tmp_path / "serving" / "1", public_key=keys / "other.pub").signatures


def test_what_is_not_signed_by_that_key_is_refused(signed: Path, keys: Path) -> None:
    refused(signed, keys / "other.pub", "is not a signature of the key")
    signature_path(signed).unlink()
    refused(signed, keys / "mine.pub", "is not signed")
    checks = verify_bundle(signed, public_key=keys / "mine.pub")  # not required: told, no more
    assert all(check.ok for check in checks)
    assert "is not signed" in checks[0].text
    assert [check.what for check in checks if not check.checked] == ["signed"]


def test_a_signature_is_named_where_no_key_is(signed: Path) -> None:
    signature, *rest = verify_bundle(signed)
    assert (signature.what, signature.ok, signature.checked) == ("signed", True, False)
    assert signature.text == f"{signature_path(signed)} is not checked: no public key is named"
    assert all(check.checked for check in rest)


def test_a_bundle_altered_after_it_was_signed_is_refused(signed: Path, keys: Path) -> None:
    graph = json.loads((signed / "graph.json").read_bytes())
    (signed / "graph.json").write_text(json.dumps(graph, indent=1))
    refused(signed, keys / "mine.pub", r"graph\.json does not match its digest")
    reseal(signed)
    refused(signed, keys / "mine.pub", "is not as it was signed")


def test_a_signature_that_was_altered_is_refused(signed: Path, keys: Path) -> None:
    path = signature_path(signed)
    whole = json.loads(path.read_bytes())

    def changed(way: list[Any], value: object) -> str:
        body = json.loads(json.dumps(whole))
        holder = body
        for key in way[:-1]:
            holder = holder[key]
        holder[way[-1]] = value
        return json.dumps(body)

    envelope = whole["dsseEnvelope"]
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["resources"].pop()
    for text in (
        "", "{}", "[]", "[" * 100_000, "null",
        changed(["dsseEnvelope", "payload"], base64.b64encode(json.dumps(statement).encode()).decode()),
        changed(["dsseEnvelope", "signatures"], []),
        changed(["dsseEnvelope", "signatures"], envelope["signatures"] * 2),
        changed(["dsseEnvelope", "signatures", 0, "sig"], "AAAA"),
        changed(["dsseEnvelope", "payloadType"], "text/plain"),
        changed(["mediaType"], "text/plain"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(BundleError, match="is not a signature"):
            Bundle.load(signed, public_key=keys / "mine.pub")


def test_a_key_that_cannot_be_used_is_named(signed: Path, keys: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no key")
    for use in (
        lambda key: sign_bundle(signed, key),
        lambda key: Bundle.load(signed, public_key=key),
    ):
        for key, says in ((tmp_path / "text", "cannot be used"), (tmp_path / "none", "cannot be read")):
            with pytest.raises(InputError, match=says):
                use(key)
    with pytest.raises(InputError, match="P-256"):
        sign_bundle(signed, keys / "weak.pem")
    with pytest.raises(InputError, match="P-256"):
        Bundle.load(signed, public_key=keys / "weak.pub")
    with pytest.raises(InputError, match="none is named") as refusal:
        verify_bundle(signed, require_signed=True)
    assert "--public-key PUB.pem" in (refusal.value.fix or "")


def test_no_fix_writes_over_a_key(signed: Path, keys: Path, tmp_path: Path) -> None:
    private = shutil.copyfile(keys / "mine.pem", tmp_path / "my key.pem")
    with pytest.raises(InputError, match="it is a private key") as refusal:
        verify_bundle(signed, public_key=private)
    _, command, then = (refusal.value.fix or "").split("`")
    assert then == " derives the public one"
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert private.read_bytes() == (keys / "mine.pem").read_bytes()
    assert Bundle.load(signed, public_key=tmp_path / "my key.pem.pub").signatures
    with pytest.raises(InputError, match="it is a public key") as refusal:
        sign_bundle(signed, keys / "mine.pub")
    assert refusal.value.fix == "name the private key of that pair"
    (tmp_path / "text").write_text("no key")
    for use in (lambda key: sign_bundle(signed, key), lambda key: Bundle.load(signed, public_key=key)):
        with pytest.raises(InputError, match=r"Unable to load PEM file\)\n") as refusal:
            use(tmp_path / "text")
        assert "-out NEW.pem" in (refusal.value.fix or "")


def test_a_signature_of_model_signing_is_read(tmp_path: Path, keys: Path) -> None:
    """Made by model-signing 1.1.1, which also accepted ours; `make.sh` beside it says how."""
    folder = shutil.copytree(THEIRS, tmp_path / "signed") / "bundle"
    assert Bundle.load(folder, public_key=THEIRS / "key.pub").signatures
    theirs = json.loads(signature_path(folder).read_bytes())
    sign_bundle(folder, keys / "mine.pem")
    ours = json.loads(signature_path(folder).read_bytes())
    statements = [json.loads(base64.b64decode(body["dsseEnvelope"]["payload"])) for body in (theirs, ours)]
    for statement in statements:
        statement["predicate"]["serialization"].pop("ignore_paths")
    assert statements[0] == statements[1]
    assert ours.keys() == theirs.keys()
    assert ours["verificationMaterial"].keys() == theirs["verificationMaterial"].keys()
    assert ours["dsseEnvelope"].keys() == theirs["dsseEnvelope"].keys()
