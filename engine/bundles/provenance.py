"""Where a pushed model comes from: an in-toto Statement v1 with SLSA provenance v1, in a DSSE envelope.

It lies beside the version as `3.intoto.jsonl`, and beside the receipt of the push. Its subjects are the files of the
model with their SHA-256, so that any verifier of attestations can hold it against them: https://slsa.dev/spec/v1.0.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...digest import TreeDigest, digest_tree
from ...errors import InputError
from ...signatures import OtherKeyError, envelope, signed_payload
from ...signatures import public_key as read_public_key
from ..lowering.programs import BundleError
from .manifest import broken

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:drivetrain:run:v1"
_PAYLOAD: Final = "application/vnd.in-toto+json"
_MOST: Final = 64 << 20  # bytes of an envelope


def provenance_statement(tree: TreeDigest, facts: Mapping[str, Any]) -> dict[str, Any]:  # Any: JSON
    """The statement of a model's files.

    Args:
        tree: The files.
        facts: How they came to be, as `LaunchContext.provenance` gives it: `run`, `execution`, `component`,
            `pipeline`, `parameters`, `code`, `environment`, `started`, `finished`, `artifacts`, `files`.
    """
    release = version("drivetrain")
    parameters = {name: facts[name] for name in ("pipeline", "component", "parameters") if name in facts}
    inner = {name: facts[name] for name in ("node", "execution", "environment") if name in facts}
    metadata = {
        "invocationId": facts.get("run"),
        "startedOn": facts.get("started"),
        "finishedOn": facts.get("finished"),
    }
    return {
        "_type": STATEMENT,
        "subject": [{"name": file.path, "digest": {"sha256": file.sha256}} for file in tree.files],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": parameters,
                "internalParameters": inner,
                "resolvedDependencies": list(_materials(facts)),
            },
            "runDetails": {
                "builder": {"id": f"pkg:pypi/drivetrain@{release}", "version": {"drivetrain": release}},
                "metadata": {name: value for name, value in metadata.items() if value},
            },
        },
    }


def _materials(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the model was made from: files with their SHA-256, artifacts and code by drivetrain's own digests."""
    for artifact in facts.get("artifacts", ()):
        known = {name: artifact[name] for name in ("type", "span", "version") if name in artifact}
        yield {
            "name": artifact["uri"],
            "digest": {"drivetrainFingerprint": artifact["fingerprint"]},
            "annotations": known,
        }
    for file in facts.get("files", ()):
        yield {"name": file["name"], "digest": {"sha256": file["sha256"]}, "annotations": {"type": "file"}}
    for name, checksum in facts.get("code", {}).items():
        yield {"name": name, "digest": {"drivetrainCode": checksum}, "annotations": {"type": "code"}}


def provenance_envelope(statement: Mapping[str, Any], key: EllipticCurvePrivateKey | None) -> bytes:
    """A statement in its envelope, one line of JSON; without a key the envelope has no signature."""
    payload = json.dumps(statement, sort_keys=True).encode()
    if key is not None:
        return json.dumps(envelope(payload, _PAYLOAD, key)).encode() + b"\n"
    text = base64.b64encode(payload).decode()
    return json.dumps({"payload": text, "payloadType": _PAYLOAD, "signatures": []}).encode() + b"\n"


def provenance_path(bundle: Path) -> Path:
    """Where the provenance of a pushed model lies: beside its folder."""
    folder = bundle.resolve()
    return folder.with_name(f"{folder.name}.intoto.jsonl")


def check_provenance(bundle: Path, public_key: Path) -> dict[str, Any]:  # Any: JSON
    """The statement beside a pushed model, which a key signed and which is of its files, all of them.

    Args:
        bundle: The folder of the version.
        public_key: A file with the public key in PEM.

    Raises:
        BundleError: There is none, it is of another key or of other files, or cannot be read.
        InputError: The key cannot be used.
    """
    key, path = read_public_key(public_key), provenance_path(bundle)
    try:
        if path.stat().st_size > _MOST:
            raise ValueError(f"it is larger than {_MOST >> 20} MiB")
        statement = json.loads(signed_payload(json.loads(path.read_bytes()), _PAYLOAD, key))
        if (statement["_type"], statement["predicateType"]) != (STATEMENT, PREDICATE):
            raise ValueError(f"it states {statement['predicateType']!r:.80}")
        subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    except FileNotFoundError as error:
        raise BundleError(
            f"{bundle} has no provenance: there is no {path}", fix="fetch it too, or push with a key"
        ) from error
    except OtherKeyError as error:
        raise BundleError(
            f"{path} is not signed by the key of {public_key}", fix="use the public key of who pushed it"
        ) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} cannot be read as provenance ({error!s:.100})", fix="fetch it again") from error
    try:
        stored = {file.path: file.sha256 for file in digest_tree(bundle).files}
    except InputError as error:
        raise broken(str(bundle), error.message) from error
    if odd := {name for name in {*subjects, *stored} if subjects.get(name) != stored.get(name)}:
        raise broken(str(bundle), f"{min(odd)} is not what its provenance is of")
    return dict(statement)
