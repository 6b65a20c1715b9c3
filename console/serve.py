"""`serve`: a model server for what Pusher pushed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from ..addresses import local_path
from ..errors import InputError
from .exit_codes import OK
from .options import ConsoleSettings, shared
from .terminal import echo

if TYPE_CHECKING:
    from ..metadata import ArtifactRecord
    from ..serving.config import ModelConfig
    from ..serving.registered import RegisteredModels
    from ..serving.server import Listening


@click.command(
    epilog="\b\nExample:\n  drivetrain serve served/flights\n"
    "  drivetrain serve s3://bucket/serving/flights --name late --host 0.0.0.0\n"
    "  drivetrain serve registered:flights@champion\n"
    "  drivetrain serve --config models.yaml\n"
)
@click.argument("address", required=False)
@click.option(
    "--name", "--model_name", "name", help="What requests call the model; the last part of ADDRESS if not given."
)
@click.option("--model_base_path", "base_path", hidden=True, help="TensorFlow Serving's name for ADDRESS.")
@click.option(
    "--config",
    "--model_config_file",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A YAML file of several models: see docs/serving.md.",
)
@click.option(
    "--config-poll", "--model_config_file_poll_wait_seconds", "config_poll", type=click.FloatRange(0), default=1.0,
    show_default=True, metavar="SECONDS", help="How often that file is looked at for changes; 0: once, at the start.",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at; 0.0.0.0: all of them.")
@click.option(
    "--rest-port", "--rest_api_port", "rest_port", type=click.IntRange(0, 65535), default=8501, show_default=True,
    help="For HTTP; 0: any that is free.",
)  # fmt: skip
@click.option(
    "--grpc-port", "--port", "grpc_port", type=click.IntRange(0, 65535), default=None,
    help="For gRPC, 8500 say; 0: any that is free; no gRPC unless given.",
)  # fmt: skip
@click.option(
    "--poll", "--file_system_poll_wait_seconds", "poll", type=click.FloatRange(0), default=1.0, show_default=True,
    metavar="SECONDS", help="How often new versions are looked for; 0: once, at the start.",
)  # fmt: skip
@click.option(
    "--drain", type=click.FloatRange(0), default=0.0, show_default=True, metavar="SECONDS",
    help="How long it goes on, not ready, when it is told to end.",
)  # fmt: skip
@click.option(
    "--batch-wait", type=click.IntRange(0), default=0, show_default=True, metavar="MICROSECONDS",
    help="How long a request waits for others to be answered with it.",
)  # fmt: skip
@click.option(
    "--request-log", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER",
    help="Log requests and their answers there, as Parquet.",
)  # fmt: skip
@click.option(
    "--request-log-sample", type=click.FloatRange(0, 1, min_open=True), default=1.0, show_default=True, metavar="SHARE",
    help="Of the requests, how many are logged.",
)  # fmt: skip
@click.option(
    "--admin/--no-admin",
    default=None,
    help="Load and unload models by request; only where --host is this machine alone, or by a key that may.",
)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True,
    help="How many processes answer, each with every model; one that dies is replaced.",
)  # fmt: skip
@click.option(
    "--memory-mb", type=click.IntRange(1), default=None, metavar="MB",
    help="What the models in each process's memory may take; those asked least recently leave it until they are asked.",
)  # fmt: skip
@click.option(
    "--keys", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
    help="A YAML file of who may ask: see docs/serving.md; anybody unless given.",
)  # fmt: skip
@click.option(
    "--require-signed", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None, metavar="KEY.pub",
    help="Serve only versions that this key, in PEM, has signed (`drivetrain bundle sign`).",
)  # fmt: skip
@click.option("--new-key", default=None, metavar="NAME", help="Make a key for --keys, print it, and end.")
@click.option(
    "--tls-cert", type=click.Path(path_type=Path), default=None, metavar="FILE",
    help="A certificate in PEM: HTTP and gRPC by TLS only.",
)  # fmt: skip
@click.option("--tls-key", type=click.Path(path_type=Path), default=None, metavar="FILE", help="Its key in PEM.")
@click.option(
    "--tls-client-ca", type=click.Path(path_type=Path), default=None, metavar="FILE",
    help="Refuse clients without a certificate that these, in PEM, have signed.",
)  # fmt: skip
@click.option(
    "--cors-origin", "cors_origins", multiple=True, metavar="URL",
    help="Whose pages may ask from a browser; *: any; may be given several times.",
)  # fmt: skip
@click.option(
    "--otlp-endpoint", default=None, metavar="URL",
    help="Send a span for each request to this OpenTelemetry collector, http://localhost:4318 say (extra otel).",
)  # fmt: skip
@shared
def serve(
    settings: ConsoleSettings,
    address: str | None,
    name: str | None,
    base_path: str | None,
    config: Path | None,
    config_poll: float,
    host: str,
    rest_port: int,
    grpc_port: int | None,
    poll: float,
    drain: float,
    batch_wait: int,
    request_log: Path | None,
    request_log_sample: float,
    admin: bool | None,
    workers: int,
    memory_mb: int | None,
    keys: Path | None,
    require_signed: Path | None,
    new_key: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    cors_origins: tuple[str, ...],
    otlp_endpoint: str | None,
) -> int:
    """Serve the newest version at ADDRESS, a folder or URL that models are pushed to, until it is told to end.

    It speaks TensorFlow Serving's REST interface and the Open Inference Protocol. A version that is pushed later is
    loaded, compiled and switched to without an error to anybody; one that is damaged is refused, and the last good one
    goes on. registered:NAME@ALIAS is a registered model of the root's store: where the alias moves, the server follows.
    """
    if new_key is not None:
        return _new_key(new_key, as_json=settings.json)
    for package in ("httptools", "msgspec", "uvloop"):  # whoever lacks one is told before JAX is imported
        import_module(package)
    from ..serving.batching import BatchingOptions
    from ..serving.config import ModelConfig, read_models
    from ..serving.request_log import RequestLogOptions
    from ..serving.server import ServerOptions, log_to_stderr, run
    from ..serving.tls import TlsFiles

    address = address or base_path
    if (address is None) == (config is None):
        raise InputError("serve needs the address of a model, or --config", fix="drivetrain serve served/flights")
    if request_log is None and request_log_sample != 1.0:
        raise InputError("--request-log-sample is the share of a log", fix="say where: --request-log FOLDER")
    if config is not None:
        if name is not None or batch_wait or request_log is not None:
            raise InputError(
                "--name, --batch-wait and --request-log are for a single model", fix=f"write them into {config}"
            )
        models = read_models(config)
    else:
        assert address is not None
        name = name or _name_of(address)
        batching = BatchingOptions(batch_timeout_micros=batch_wait)
        log = None if request_log is None else RequestLogOptions(str(request_log), request_log_sample)
        models = [ModelConfig(name, address, batching=batching, request_log=log)]
    log_to_stderr()

    def started(listening: Listening) -> None:
        if settings.json:
            echo(
                json.dumps(
                    {
                        "address": listening.address,
                        "models": [*listening.models],
                        "ready": listening.ready,
                        "grpc": listening.grpc_address,
                    }
                )
            )
            return
        grpc = "" if listening.grpc_address is None else f" (REST), {listening.grpc_address} (gRPC)"
        echo(f"serving at {listening.address}{grpc} until Ctrl-C")
        for model in listening.models:
            echo(f"  {listening.address}/v1/models/{model}")

    if (tls_cert is None) != (tls_key is None) or (tls_client_ca is not None and tls_cert is None):
        raise InputError("TLS needs a certificate and its key", fix="give --tls-cert and --tls-key")
    options = ServerOptions(
        host,
        rest_port,
        grpc_port,
        poll,
        drain_seconds=drain,
        admin=admin,
        workers=workers,
        memory_bytes=None if memory_mb is None else memory_mb * 1_000_000,
        keys=keys,
        tls=TlsFiles(tls_cert, tls_key, tls_client_ca) if tls_cert and tls_key else None,
        cors_origins=cors_origins,
        require_signed=require_signed,
        config=config if config_poll else None,
        config_poll_seconds=config_poll,
        otlp_endpoint=otlp_endpoint,
    )
    registered = any(each.registered is not None for each in models)
    if require_signed is not None and registered:
        raise InputError("registered models carry no signature", fix="push the model, and serve what was pushed")
    seconds = config_poll if config is not None else poll if registered else 0.0
    with _resolving(settings) as resolve:
        if seconds:
            run(models, replace(options, config_poll_seconds=seconds), started, resolve)
        else:
            run([resolve(each) for each in models], options, started)
    return OK


def _name_of(address: str) -> str:
    """What requests call the model at an address, where nobody says it: the address's last part."""
    from ..metadata.registry import split_reference
    from ..serving.config import REGISTERED

    if address.startswith(REGISTERED):
        return split_reference(address.removeprefix(REGISTERED))[0]
    folder = local_path(address)
    path = address.rstrip("/\\") if folder is None else os.path.abspath(folder)  # noqa: PTH100 - without its ..
    return re.split(r"[/\\]", path)[-1]


@contextmanager
def _resolving(settings: ConsoleSettings) -> Iterator[Callable[[ModelConfig], ModelConfig]]:
    """What gives the version of a registered model; the root is opened for the first of them, until the block ends."""
    with ExitStack() as stack:
        opened: list[RegisteredModels] = []

        def resolve(config: ModelConfig) -> ModelConfig:
            if config.registered is None:
                return config
            if not opened:
                from ..metadata.registry import Registry
                from ..serving.registered import RegisteredModels

                home = stack.enter_context(settings.home())
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="drivetrain-serve-")))

                def fetch(record: ArtifactRecord) -> Path:
                    return home.payloads.local(record.uri, record.fingerprint) / "content"

                opened.append(RegisteredModels(Registry(home.store), fetch, folder))
            return opened[0].resolved(config)

        yield resolve


def _new_key(name: str, *, as_json: bool) -> int:
    from ..serving.access import check_name, digest_of, new_secret

    check_name(name)
    secret = new_secret()
    if as_json:
        echo(json.dumps({"name": name, "secret": secret, "sha256": digest_of(secret)}))
        return OK
    echo(f"{secret}\n\nThis is the key; it is kept nowhere. Below keys: in the file of --keys, write")
    echo(f"  {name}: {{sha256: {digest_of(secret)}}}")
    return OK
