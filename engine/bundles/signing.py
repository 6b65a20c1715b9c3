"""A signature of a bundle, by a P-256 key: a Sigstore bundle over an in-toto statement, as `model-signing` writes it.

It lies beside the folder, as `FOLDER.sig`, so that signing changes neither the bundle's digest nor the fingerprint of
its files, and it lists each file that the manifest lists, and the manifest, with its SHA-256. Verifying needs the
public key and nothing else. Why not by `model-signing` itself: docs/decisions/0013-signatures.md.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...digest import write_durably
from ...errors import InputError
from ...signatures import OtherKeyError, envelope, key_hint, private_key, signed_payload
from ...signatures import public_key as read_public_key
from ..lowering.programs import BundleError
from .manifest import MANIFEST, broken, verified_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

_MEDIA: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD: Final = "application/vnd.in-toto+json"
_STATEMENT: Final = "https://in-toto.io/Statement/v1"
_PREDICATE: Final = "https://model_signing/signature/v1.0"
_MOST: Final = 64 << 20  # bytes of a signature file


class UnsignedError(BundleError):
    """A bundle beside which there is no signature."""


def signature_path(bundle: Path) -> Path:
    """Where a bundle's signature lies: beside its folder."""
    folder = bundle.resolve()
    return folder.with_name(folder.name + ".sig")


def signature_of(bundle: Path) -> bytes | None:
    """The bytes of a bundle's signature, unchecked; None where it has none.

    Raises:
        InputError: It cannot be read, or is too large for one.
    """
    path = signature_path(bundle)
    if not path.is_file():
        return None
    try:
        return _read_signature(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def sign_bundle(bundle: Path, key: Path, password: bytes | None = None) -> Path:
    """Sign a bundle, which is checked against its digests first; an older signature is replaced.

    Args:
        bundle: The folder.
        key: A file with a P-256 private key in PEM.
        password: Of that file, if it has one.

    Returns:
        The signature's file, beside the folder.

    Raises:
        InputError: There is no bundle, a file does not match its digest, or the key cannot be used.
    """
    data, target = bundle_signature(bundle, private_key(key, password)), signature_path(bundle)
    try:
        write_durably(target, data)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error.strerror}", fix="copy the bundle where you may write beside it"
        ) from error
    return target


def bundle_signature(bundle: Path, key: EllipticCurvePrivateKey) -> bytes:
    """The signature of a bundle, which is checked against its digests first; as `sign_bundle` writes it beside.

    Raises:
        InputError: There is no bundle, or a file does not match its digest.
    """
    payload = json.dumps(_statement(bundle.resolve().name, _digests(bundle)), indent=2).encode()
    material = {"publicKey": {"hint": key_hint(key.public_key())}, "tlogEntries": []}
    body = {"mediaType": _MEDIA, "verificationMaterial": material, "dsseEnvelope": envelope(payload, _PAYLOAD, key)}
    return json.dumps(body).encode() + b"\n"


def check_public_key(path: Path) -> None:
    """See that a file holds a key that signatures can be checked with.

    Raises:
        InputError: It does not.
        DrivetrainError: `cryptography` is not installed.
    """
    read_public_key(path)


def check_signature(bundle: Path, public_key: Path, signature: bytes | None = None) -> str:
    """Check that a bundle is as it was when it was signed by a key.

    Args:
        bundle: The folder.
        public_key: A file with the public key in PEM.
        signature: The bytes of its signature where that does not lie beside it.

    Returns:
        The SHA-256 of the manifest, which holds those of the other files.

    Raises:
        UnsignedError: There is no signature.
        BundleError: It is of another key or of other files, or no signature that this release reads.
        InputError: There is no bundle, or the key cannot be used.
    """
    key, path = read_public_key(public_key), signature_path(bundle)
    if signature is None:
        signature = signature_of(bundle)
    if signature is None:
        raise UnsignedError(f"{bundle} is not signed: there is no {path}", fix="fetch the signature too, or sign it")
    payload = _signed(signature, path, key, public_key)
    digests = _digests(bundle)
    try:
        signed = _resources(payload)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from error
    # Files that a manifest does not list are never read, so that those alone may be signed besides.
    if odd := {name for name, checksum in digests.items() if signed.get(name) != checksum}:
        raise broken(str(bundle), f"{min(odd)} is not as it was signed")
    return digests[MANIFEST]


def _digests(bundle: Path) -> dict[str, str]:
    """The SHA-256 of each file that a bundle consists of, by name; each is as its manifest says."""
    body, paths = verified_folder(bundle)
    digests = {str(name): str(checksum) for name, _, checksum in body["files"]}
    return dict(sorted({**digests, MANIFEST: sha256(paths[MANIFEST].read_bytes()).hexdigest()}.items()))


# --- the format ---


def _statement(name: str, digests: dict[str, str]) -> dict[str, Any]:  # Any: JSON
    whole = sha256(b"".join(map(bytes.fromhex, digests.values()))).hexdigest()
    return {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": whole}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {"allow_symlinks": False, "hash_type": "sha256", "ignore_paths": [], "method": "files"},
            "resources": [
                {"name": name, "algorithm": "sha256", "digest": checksum} for name, checksum in digests.items()
            ],
        },
    }


def _resources(payload: bytes) -> dict[str, str]:
    """The SHA-256 of each signed file, by name."""
    statement = json.loads(payload)
    if (statement["_type"], statement["predicateType"]) != (_STATEMENT, _PREDICATE):
        raise ValueError(f"it states {statement['predicateType']!r:.80}")
    predicate = statement["predicate"]
    if (predicate["serialization"]["method"], predicate["serialization"]["hash_type"]) != ("files", "sha256"):
        raise ValueError("it is not of whole files by SHA-256")
    listed = [(each["name"], each["algorithm"], each["digest"]) for each in predicate["resources"]]
    if len({name for name, _, _ in listed}) < len(listed) or any(algorithm != "sha256" for _, algorithm, _ in listed):
        raise ValueError("it lists a file twice, or not by SHA-256")
    return {name: checksum for name, _, checksum in listed}


def _signed(data: bytes, path: Path, key: EllipticCurvePublicKey, of: Path) -> bytes:
    """The statement that a signature's file holds, which the key signed."""
    try:
        body = json.loads(data)
        if body["mediaType"] != _MEDIA:
            raise ValueError(f"it is a {body['mediaType']!r:.80}")
        return signed_payload(body["dsseEnvelope"], _PAYLOAD, key)
    except OtherKeyError as error:
        raise BundleError(
            f"{path} is not a signature of the key of {of}",
            fix="use the public key of who signed it, or fetch it again",
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from error


def _read_signature(path: Path) -> bytes:
    if path.stat().st_size > _MOST:
        raise ValueError(f"it is larger than {_MOST >> 20} MiB")
    return path.read_bytes()


def _unreadable(path: Path, error: Exception) -> BundleError:
    return BundleError(
        f"{path} is not a signature that can be read ({error!s:.100})", fix="fetch it again, or sign the bundle again"
    )
