"""Where a pushed model comes from: a statement that is signed, of the files that were pushed, and checked offline."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from click.testing import CliRunner, Result
from drivetrain.console.cli import cli
from drivetrain.engine import BundleError
from drivetrain.engine.bundles.provenance import check_provenance
from drivetrain.pipelines import Home

pytestmark = pytest.mark.engine

PIPELINE = """
    import drivetrain as dt
    from drivetrain.components import ExampleGen, Pusher
    from drivetrain.metadata import Examples, Model
    from drivetrain.pipelines import component

    @component
    def Train(examples: Examples, scale: float) -> Model:
        from drivetrain import data, engine

        model = Model.new()
        source = data.open_examples(examples.content, "train")
        engine.analyze(lambda row: {"y": row["x"] * scale}, source, data.executor("local")).save(model.content)
        return model

    @dt.pipeline
    def scaled(scale: float = 2.0) -> None:
        examples = ExampleGen("days/{SPAN}.csv")
        Pusher(Train(examples, scale), destination="serving/scaled", signing_key=KEY)
"""


def drivetrain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="drivetrain")


def pair(folder: Path, name: str) -> Path:
    for command in (
        f"ecparam -name prime256v1 -genkey -noout -out {name}.pem",
        f"ec -in {name}.pem -pubout -out {name}.pub",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return folder / f"{name}.pub"


@pytest.fixture
def pushed(
    request: pytest.FixtureRequest,
    project: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """The result of a run that pushed, and signed by the key mine.pem unless the test asks for no key."""
    monkeypatch.delenv("DRIVETRAIN_ROOT")
    monkeypatch.setenv("HOME", str(tmp_path))
    key = getattr(request, "param", '"mine.pem"')
    folder = project("scaled", pipeline=PIPELINE.replace("KEY", key))
    (folder / "days").mkdir()
    (folder / "days" / "7.csv").write_text("x\n" + "\n".join(str(number) for number in range(20)) + "\n")
    (tmp_path / "pyproject.toml").touch()
    pair(tmp_path, "mine"), pair(tmp_path, "other")
    monkeypatch.chdir(tmp_path)
    result = drivetrain("run", "scaled", "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_the_statement_says_what_the_model_was_made_of_by_what(pushed: dict[str, Any], tmp_path: Path) -> None:
    version = tmp_path / "serving" / "scaled" / "1"
    statement = check_provenance(version, tmp_path / "mine.pub")
    files = {path.relative_to(version).as_posix(): path for path in version.rglob("*") if path.is_file()}
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert details["metadata"]["invocationId"] == pushed["run"]
    assert details["builder"]["id"].startswith("pkg:pypi/drivetrain@")
    assert definition["externalParameters"]["pipeline"] == "scaled"
    assert definition["externalParameters"]["parameters"]["scale"] == 2.0
    materials = {each["name"]: each for each in definition["resolvedDependencies"]}
    with closing(Home(tmp_path / ".drivetrain")) as home:
        (examples,) = home.store.artifacts(type="Examples")
    assert materials[examples.uri] == {
        "name": examples.uri,
        "digest": {"drivetrainFingerprint": examples.fingerprint},
        "annotations": {"type": "Examples", "span": 7},
    }
    (csv,) = (each for name, each in materials.items() if name.endswith("7.csv"))
    data = (tmp_path / "scaled" / "days" / "7.csv").read_bytes()
    assert csv["digest"] == {"sha256": hashlib.sha256(data).hexdigest()}
    assert any(each["annotations"] == {"type": "code"} for each in materials.values())


def test_it_lies_beside_the_receipt_too_in_the_envelope_of_the_standard(pushed: dict[str, Any], tmp_path: Path) -> None:
    with closing(Home(tmp_path / ".drivetrain")) as home:
        (receipt,) = home.store.artifacts(type="PushedModel")
        kept = (home.root / receipt.uri / "extra" / "provenance.intoto.jsonl").read_bytes()
    assert (tmp_path / "serving" / "scaled" / "1.intoto.jsonl").read_bytes() == kept
    envelope = json.loads(kept)
    payload, (signature,) = base64.b64decode(envelope["payload"]), envelope["signatures"]
    kind = envelope["payloadType"]
    assert kind == "application/vnd.in-toto+json"
    # https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md, checked by OpenSSL
    (tmp_path / "signed").write_bytes(b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(signature["sig"]))
    command = ["openssl", "dgst", "-sha256", "-verify", "mine.pub", "-signature", "sig", "signed"]
    assert subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout == "Verified OK\n"


def changed(version: Path) -> None:
    file = next(path for path in sorted(version.rglob("*")) if path.suffix == ".json")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes() + b" ")


def added(version: Path) -> None:
    (version / "more").write_text("more")


def removed(version: Path) -> None:
    next(path for path in sorted(version.rglob("*")) if path.suffix == ".json").unlink()


@pytest.mark.parametrize("edit", [changed, added, removed])
def test_other_files_are_refused(edit: Callable[[Path], None], pushed: dict[str, Any], tmp_path: Path) -> None:
    version = tmp_path / "serving" / "scaled" / "1"
    edit(version)
    with pytest.raises(BundleError, match="is not what its provenance is of"):
        check_provenance(version, tmp_path / "mine.pub")


def test_another_key_and_another_statement_are_refused(pushed: dict[str, Any], tmp_path: Path) -> None:
    version = tmp_path / "serving" / "scaled" / "1"
    with pytest.raises(BundleError, match="not signed by the key"):
        check_provenance(version, tmp_path / "other.pub")
    beside = version.with_name("1.intoto.jsonl")
    envelope = json.loads(beside.read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["runDetails"]["metadata"]["invocationId"] = "another"
    beside.write_text(json.dumps(envelope | {"payload": base64.b64encode(json.dumps(statement).encode()).decode()}))
    with pytest.raises(BundleError, match="not signed by the key"):
        check_provenance(version, tmp_path / "mine.pub")
    beside.write_text("{}")
    with pytest.raises(BundleError, match="cannot be read as provenance"):
        check_provenance(version, tmp_path / "mine.pub")
    beside.unlink()
    with pytest.raises(BundleError, match="has no provenance"):
        check_provenance(version, tmp_path / "mine.pub")


def test_the_shell_checks_signature_and_provenance(pushed: dict[str, Any], tmp_path: Path) -> None:
    words = ("bundle", "verify", "serving/scaled/1", "--require-signed", "--public-key")
    result = drivetrain(*words, "mine.pub")
    assert result.exit_code == 0, result.output
    assert f"provenance: of run {pushed['run']}" in result.stdout
    assert drivetrain(*words, "other.pub").exit_code == 1


@pytest.mark.parametrize("pushed", ["None"], indirect=True)
def test_without_a_key_the_statement_is_kept_unsigned_beside_the_receipt(
    pushed: dict[str, Any], tmp_path: Path
) -> None:
    assert sorted(path.name for path in (tmp_path / "serving" / "scaled").iterdir()) == ["1", "1.json"]
    with closing(Home(tmp_path / ".drivetrain")) as home:
        (receipt,) = home.store.artifacts(type="PushedModel")
        envelope = json.loads((home.root / receipt.uri / "extra" / "provenance.intoto.jsonl").read_bytes())
    assert envelope["signatures"] == []
    assert json.loads(base64.b64decode(envelope["payload"]))["predicateType"] == "https://slsa.dev/provenance/v1"


PROGRAM = os.environ.get("DRIVETRAIN_MODEL_SIGNING") or shutil.which("model_signing")
"""model-signing 1.1.1 with pyOpenSSL, in an environment of its own: it brings too much for ours."""

if PROGRAM is not None:
    program: str = PROGRAM

    def test_model_signing_verifies_the_version_offline(pushed: dict[str, Any], tmp_path: Path) -> None:
        command = [program, "verify", "key", "--signature", "1.sig", "--public_key", str(tmp_path / "mine.pub"), "1"]
        folder = tmp_path / "serving" / "scaled"
        done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        changed(folder / "1")
        assert subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode != 0
