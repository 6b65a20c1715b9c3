"""`metadata-server`: stores over HTTP, by API keys with roles."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import click

from ..errors import InputError
from ..metadata.roles import ROLES
from .exit_codes import OK
from .options import ConsoleSettings, shared
from .terminal import echo


@click.command(
    epilog="\b\nExample:\n  drivetrain metadata-server --new-key alice --role writer --namespace flights\n"
    "  drivetrain metadata-server access.yaml --host 0.0.0.0 --tls-cert server.pem --tls-key server.key\n"
    "  DRIVETRAIN_METADATA_KEY=… drivetrain run examples/flights --store https://metadata.example:8600/flights\n"
)
@click.argument("access", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of them.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8600, show_default=True, help="For HTTP; 0: any that is free."
)
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), default=None, metavar="FILE", help="A certificate in PEM: TLS only."
)
@click.option("--tls-key", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Its key in PEM.")
@click.option("--plain-http", is_flag=True, help="Listen beyond this machine without TLS: a proxy before it ends TLS.")
@click.option("--new-key", default=None, metavar="NAME", help="Make a key, print it, and end.")
@click.option(
    "--role",
    "roles",
    type=click.Choice(ROLES),
    multiple=True,
    help="Of --new-key: what it may do; reader unless given.",
)
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help="Of --new-key: where; all unless given.")
@click.option(
    "--expires", type=click.DateTime(["%Y-%m-%d"]), default=None, metavar="YYYY-MM-DD",
    help="Of --new-key: from which day (UTC) on it is unknown.",
)  # fmt: skip
@shared
def metadata_server(
    settings: ConsoleSettings,
    access: Path | None,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    plain_http: bool,
    new_key: str | None,
    roles: tuple[str, ...],
    namespaces: tuple[str, ...],
    expires: date | None,
) -> int:
    """Serve metadata stores over HTTP to machines without database passwords, until told to end.

    FILE names the stores and says by API keys who may do what in them; `--store http://HOST:PORT/NAMESPACE` with the
    key in DRIVETRAIN_METADATA_KEY then works wherever a store's URL may stand.
    """
    if new_key is not None:
        return _new_key(new_key, roles or ("reader",), namespaces, expires, as_json=settings.json)
    if access is None:
        raise InputError("the server needs a file of namespaces and keys", fix="drivetrain metadata-server access.yaml")
    if roles or namespaces or expires is not None:
        raise click.UsageError("--role, --namespace and --expires are for --new-key")
    if (tls_cert is None) != (tls_key is None):
        raise InputError("TLS needs a certificate and its key", fix="give --tls-cert and --tls-key")
    from ..serving.metadata_server import MetadataServerOptions, run_metadata_server
    from ..serving.server import log_to_stderr
    from ..serving.tls import TlsFiles

    tls = TlsFiles(tls_cert, tls_key) if tls_cert and tls_key else None
    log_to_stderr()

    def started(address: str) -> None:
        echo(json.dumps({"address": address}) if settings.json else f"metadata stores at {address} until Ctrl-C")

    run_metadata_server(MetadataServerOptions(access, host, port, tls, plain_http), started)
    return OK


def _new_key(
    name: str, roles: tuple[str, ...], namespaces: tuple[str, ...], expires: date | None, *, as_json: bool
) -> int:
    from ..serving.access import check_name, digest_of, new_secret

    check_name(name)
    secret = new_secret()
    entry: dict[str, object] = {"sha256": digest_of(secret), "roles": list(roles)}
    if namespaces:
        entry["namespaces"] = list(namespaces)
    if expires is not None:
        entry["expires"] = f"{expires:%Y-%m-%d}"
    if as_json:
        echo(json.dumps({"name": name, "secret": secret, **entry}))
        return OK
    echo(f"{secret}\n\nThis is the key; it is kept nowhere. Below keys: in the server's file, write")
    echo(f"  {name}: {json.dumps(entry)}")
    return OK
