"""Certificates, over real connections: HTTP and gRPC, with and without clients' own."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import grpc
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from drivetrain.console.cli import cli
from drivetrain.errors import InputError
from drivetrain.serving.server import ServerOptions
from drivetrain.serving.tls import TlsFiles
from drivetrain.tests.serving.open_server import open_server
from drivetrain.tests.serving.test_access import FILE
from drivetrain.tests.serving.test_config_file import until

LIVE = "/inference.GRPCInferenceService/ServerLive"


def write_certificate(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path, int]:
    """The files of a certificate for 127.0.0.1 that signed itself, and of its key; and its serial number."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    encryption: Any = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    content = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (folder / f"{name}.key").write_bytes(content)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return folder / f"{name}.pem", folder / f"{name}.key", certificate.serial_number


def serial(address: str) -> int:
    """Of the certificate that a server shows now."""
    host, port = address.removeprefix("https://").split(":")
    return int(x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode()).serial_number)


def test_tls_and_its_renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Clients that trust it get in, others and plain text do not; a renewed certificate is shown without a restart."""
    monkeypatch.setattr("drivetrain.serving.tls._LOOK_SECONDS", 0.05)
    certificate, key, first = write_certificate(tmp_path, "server")
    trusting = ssl.create_default_context(cafile=certificate)
    channel = grpc.ssl_channel_credentials(certificate.read_bytes())
    with open_server(ServerOptions(tls=TlsFiles(certificate, key))) as server:
        assert server.rest.startswith("https://")
        assert server.ask("GET", "/v2/health/live", tls=trusting)[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            server.ask("GET", "/v2/health/live", tls=ssl.create_default_context())
        assert server.call(LIVE, credentials=channel) == "OK"
        assert server.call(LIVE) == "UNAVAILABLE"
        assert serial(server.rest) == first
        key.write_text("damaged")
        until(lambda: "the certificate stays as it was: " in caplog.text)
        assert serial(server.rest) == first
        second = write_certificate(tmp_path, "server")[2]
        until(lambda: serial(server.rest) == second)
        renewed = grpc.ssl_channel_credentials(certificate.read_bytes())
        assert server.call(LIVE, credentials=renewed) == "OK"


def test_clients_need_certificates(tmp_path: Path) -> None:
    """Of the authority that was named: none, and another's, are refused."""
    certificate, key, _ = write_certificate(tmp_path, "server")
    known, known_key, _ = write_certificate(tmp_path, "client")
    other, other_key, _ = write_certificate(tmp_path, "other")
    pairs = ((known, known_key, True), (other, other_key, False), (None, None, False))
    tls = TlsFiles(certificate, key, known)
    with open_server(ServerOptions(tls=tls)) as server:
        for theirs, their_key, let_in in pairs:
            context = ssl.create_default_context(cafile=certificate)
            chain: tuple[bytes, ...] = ()
            if theirs is not None and their_key is not None:
                context.load_cert_chain(theirs, their_key)
                chain = (their_key.read_bytes(), theirs.read_bytes())
            if let_in:
                assert server.ask("GET", "/v2/health/live", tls=context)[0] == 200
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    server.ask("GET", "/v2/health/live", tls=context)
            credentials = grpc.ssl_channel_credentials(certificate.read_bytes(), *chain)
            assert (server.call(LIVE, credentials=credentials) == "OK") is let_in
    assert tls.context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_wrong_files_say_what_is_wrong(tmp_path: Path) -> None:
    """A missing one, no PEM, another's key, a key with a password, an authority without certificates."""
    certificate, key, _ = write_certificate(tmp_path, "server")
    _, other_key, _ = write_certificate(tmp_path, "other")
    _, locked, _ = write_certificate(tmp_path, "locked", b"password")
    (tmp_path / "text").write_text("text")
    for files in (
        TlsFiles(tmp_path / "missing", key),
        TlsFiles(tmp_path / "text", key),
        TlsFiles(certificate, other_key),
        TlsFiles(tmp_path / "locked.pem", locked),
        TlsFiles(certificate, key, tmp_path / "text"),
        TlsFiles(certificate, key, tmp_path / "missing"),
    ):
        with pytest.raises(InputError, match=r"cannot be used: .*\w") as caught:
            files.context()
        assert "PEM" in str(caught.value.fix)


def test_predict_takes_a_key_and_an_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files; the server answers 401 without the key, and that it has no such model with it."""
    monkeypatch.delenv("DRIVETRAIN_API_KEY", raising=False)
    certificate, key, _ = write_certificate(tmp_path, "server")
    (tmp_path / "keys.yaml").write_text(FILE)
    (tmp_path / "key").write_text("app-secret\n")
    with open_server(ServerOptions(tls=TlsFiles(certificate, key), keys=tmp_path / "keys.yaml")) as server:

        def outcome(*options: str) -> str:
            asked = ["predict", f"{server.rest}/v1/models/flights", "--row", "{}", *options]
            result = CliRunner().invoke(cli, asked)
            assert result.exit_code != 0
            assert "app-secret" not in result.output
            return result.output

        assert "CERTIFICATE_VERIFY_FAILED" in outcome()
        assert "answers 401" in outcome("--tls-ca", str(certificate))
        assert "answers 404" in outcome("--tls-ca", str(certificate), "--key-file", str(tmp_path / "key"))
        assert "holds no certificates" in outcome("--tls-ca", str(key))


def test_serve_needs_both_files() -> None:
    """A certificate without its key, or an authority alone, would be no TLS."""
    for option in ("--tls-cert", "--tls-key", "--tls-client-ca"):
        result = CliRunner().invoke(cli, ["serve", "models/net", option, "file.pem"])
        assert "give --tls-cert and --tls-key" in result.output
