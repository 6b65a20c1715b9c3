"""Signatures by a P-256 key: DSSE envelopes, which hold what is signed beside its signature, and the keys' files.

https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md
"""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from .errors import InputError, missing_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey


class OtherKeyError(ValueError):
    """A signature that is not of the key, or of something else."""


def envelope(payload: bytes, kind: str, key: EllipticCurvePrivateKey) -> dict[str, Any]:
    """A payload and its signature as a DSSE envelope: a JSON object.

    Args:
        payload: What is signed.
        kind: Its media type, which is signed with it.
        key: The private key.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    signature = key.sign(_authenticated(payload, kind), ECDSA(SHA256()))
    return {
        "payload": _base64(payload),
        "payloadType": kind,
        "signatures": [{"sig": _base64(signature), "keyid": ""}],
    }


def signed_payload(body: Any, kind: str, key: EllipticCurvePublicKey) -> bytes:
    """What a DSSE envelope holds, which the key signed.

    Args:
        body: The envelope. Any: JSON from outside.
        kind: The media type that it must have.
        key: The public key.

    Raises:
        OtherKeyError: The signature is not of this key, or of another payload.
        ValueError, LookupError, TypeError, AttributeError: It is no such envelope.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    if body["payloadType"] != kind:
        raise ValueError(f"it is a {body['payloadType']!r:.80}")
    payload = base64.b64decode(body["payload"], validate=True)
    (signature,) = (base64.b64decode(each["sig"], validate=True) for each in body["signatures"])
    try:
        key.verify(signature, _authenticated(payload, kind), ECDSA(SHA256()))
    except InvalidSignature as error:
        raise OtherKeyError("the signature is not of this key") from error
    return payload


def _authenticated(payload: bytes, kind: str) -> bytes:
    """What is signed: PAE of the protocol."""
    return f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def key_hint(key: EllipticCurvePublicKey) -> str:
    """SHA-256 (hex) of a public key in PEM: which key a signature is of."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return sha256(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def private_key(path: Path, password: bytes | None = None) -> EllipticCurvePrivateKey:
    """The P-256 private key in a PEM file.

    Raises:
        InputError: It cannot be read or used.
        DrivetrainError: `cryptography` is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise missing_extra("cryptography", "signing") from error
    text = _read_key(path)
    try:
        key = load_pem_private_key(text, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if b"-BEGIN PUBLIC KEY-" in text:
            raise _unusable_key(path, "it is a public key", "name the private key of that pair") from error
        why = f"it is not a private key in PEM, or its password is another ({_first_sentence(error)})"
        raise _unusable_key(path, why) from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise _unusable_key(path, "it is not of the curve P-256")
    return key


def public_key(path: Path) -> EllipticCurvePublicKey:
    """The P-256 public key in a PEM file; raises as `private_key`."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise missing_extra("cryptography", "signing") from error
    text = _read_key(path)
    try:
        key = load_pem_public_key(text)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if b"PRIVATE KEY-" in text:
            derive = f"openssl ec -in {quote(str(path))} -pubout -out {quote(f'{path}.pub')}"
            raise _unusable_key(path, "it is a private key", f"`{derive}` derives the public one") from error
        raise _unusable_key(path, f"it is not a public key in PEM ({_first_sentence(error)})") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise _unusable_key(path, "it is not of the curve P-256")
    return key


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"the key {path} cannot be read: {error.strerror}", fix="name a key file in PEM") from error


def _first_sentence(error: Exception) -> str:
    return str(error).partition(". ")[0]


# The command writes to a name that no document uses: openssl replaces a file, and a lost key cannot be had again.
def _unusable_key(
    path: Path,
    why: str,
    fix: str = "name a P-256 key; `openssl ecparam -name prime256v1 -genkey -noout -out NEW.pem` makes one",
) -> InputError:
    return InputError(f"the key {path} cannot be used: {why}", fix=fix)
