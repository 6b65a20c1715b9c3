"""A server's certificates: for HTTP and gRPC, read again when their files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import InputError

_LOOK_SECONDS: Final = 1.0
_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class TlsFiles:
    """What a server proves itself with.

    Attributes:
        certificate: Its certificate and those between it and the root, PEM.
        key: The certificate's private key, PEM, without a password.
        client_ca: Who signs clients' certificates, PEM: a client without one is refused; None: none is asked for.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def context(self, protocol: str = "http/1.1") -> ssl.SSLContext:
        """For connections that speak a protocol, by its name in ALPN; TLS 1.2 and later.

        Raises:
            InputError: A file cannot be read, is no PEM, or the key is another certificate's.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([protocol])
        self.load(context)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"the clients' authority {self.client_ca} cannot be used: {_reason(error)}",
                    fix="give a file of certificates in PEM",
                ) from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Put the certificate as the files have it now into a context.

        Raises:
            InputError: As by `context`.
        """
        try:
            context.load_cert_chain(self.certificate, self.key, password="")  # without, OpenSSL asks
        except (OSError, ValueError) as error:
            raise InputError(
                f"the certificate {self.certificate} with the key {self.key} cannot be used: {_reason(error)}",
                fix="give a certificate and its key in PEM, the key without a password",
            ) from None

    async def watch(self, *contexts: ssl.SSLContext) -> None:
        """Load the certificate again whenever its files change, for ever; a broken one is logged, and the old stays."""
        seen, problem = self._stamps(), ""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if (stamps := self._stamps()) == seen:
                continue
            try:
                self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a pair that does not fit would harm the live one
                for context in contexts:
                    self.load(context)
            except InputError as error:  # tried again at the next look: of a pair, one file may still be the old one
                if str(error) != problem:
                    _LOG.error("the certificate stays as it was: %s", error)
                problem = str(error)
            else:
                seen, problem = stamps, ""
                _LOG.info("the certificate was read again")

    def _stamps(self) -> list[int]:
        try:
            statuses = [path.stat() for path in (self.certificate, self.key)]
            return [stamp for status in statuses for stamp in (status.st_mtime_ns, status.st_ctime_ns)]
        except OSError:
            return []


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return str(reason).lower().replace("_", " ")
