"""A server process: models loaded, ports open, until it is told to end; every request that came is still answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..data.arrays import spare_pandas
from ..errors import DrivetrainError, InputError
from ..lazy import kept_imports
from .access import AccessKeys
from .config import ModelConfig, require_surroundings
from .config_file import ConfigFile
from .cors import CrossOrigin
from .http import Connections, Handler, HttpConnection, HttpLimits
from .manager import ModelManager
from .metrics import ServingMetrics
from .rest import RestApi, strangers_refused
from .tls import TlsFiles
from .tracing import RequestTracing, tracing_of

_LOCAL: Final = ("127.0.0.1", "::1", "localhost")
_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class ServerOptions:
    """How to serve.

    Attributes:
        host: The address to listen at; by default this machine alone.
        rest_port: For HTTP; 0: any that is free.
        grpc_port: For gRPC; 0: any that is free; None: none.
        poll_seconds: How often new versions are looked for; 0: once, at the start.
        timeout_seconds: How long a request may take.
        drain_seconds: How long a server that is told to end says that it is not ready, and goes on answering, before it
            closes its port: as long as a load balancer needs to see it.
        limits: What clients may send.
        admin: Whether models may be loaded and unloaded by request; None: where the host is this machine alone, or keys
            say who may.
        workers: How many processes answer at the ports, each with every model; see `workers`.
        memory_bytes: What the versions in a process's memory may take together, by the size of their files; None: all
            stay in memory.
        keys: A file of the keys that may ask; None: anybody may.
        tls: Certificates; None: plain text.
        cors_origins: Whose pages may ask from a browser.
        require_signed: The file of the public key that must have signed each version that is served, of models that
            name no other; None: only of models that name one.
        config: The file that the models were read from, to be looked at while the server runs; None: none is.
        config_poll_seconds: How often; registered models are looked at as often.
        otlp_endpoint: The OpenTelemetry collector that spans go to; None: as the environment says, see `tracing`.
    """

    host: str = "127.0.0.1"
    rest_port: int = 8501
    grpc_port: int | None = None
    poll_seconds: float = 1.0
    timeout_seconds: float | None = 30.0
    drain_seconds: float = 0.0
    limits: HttpLimits = field(default_factory=HttpLimits)
    admin: bool | None = None
    workers: int = 1
    memory_bytes: int | None = None
    keys: Path | None = None
    tls: TlsFiles | None = None
    cors_origins: tuple[str, ...] = ()
    require_signed: Path | None = None
    config: Path | None = None
    config_poll_seconds: float = 1.0
    otlp_endpoint: str | None = None

    @property
    def scheme(self) -> str:
        """Of the addresses over HTTP."""
        return "http" if self.tls is None else "https"


@dataclass(frozen=True)
class Listening:
    """A server that is up.

    Attributes:
        address: Of its HTTP interface, "http://127.0.0.1:8501".
        models: The names of its models.
        ready: Whether each of them can be asked.
        grpc_address: Of its gRPC interface, "127.0.0.1:8500"; None where it has none.
    """

    address: str
    models: Sequence[str]
    ready: bool
    grpc_address: str | None = None


async def serve(
    configs: Sequence[ModelConfig],
    options: ServerOptions,
    port: socket.socket,
    started: Callable[[Listening], None],
    config_file: ConfigFile | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or until the task is cancelled.

    Args:
        configs: The models.
        options: How.
        port: A socket that has its address, and is closed in the end; clients are refused until all is loaded.
        started: Called when the port is open and every version that is there was tried.
        config_file: What says while the server runs which models there are; None: the file of the options, if any.
    """

    async def up(listening: Listening) -> None:
        if models.config_file is not None:
            watching.append(
                asyncio.create_task(models.config_file.watch(models.configure, options.config_poll_seconds))
            )
        started(listening)

    watching: list[asyncio.Task[None]] = []
    warn_of_strangers(options)
    try:
        keys = AccessKeys(options.keys) if options.keys is not None else None
        models = ModelManager(
            configs,
            poll_seconds=options.poll_seconds,
            require_signed=options.require_signed,
            most_bytes=options.memory_bytes,
        )
    except BaseException:
        port.close()
        raise
    models.config_file = config_file or (ConfigFile(options.config, configs) if options.config is not None else None)
    try:
        await serve_models(models, ServingMetrics(), options, keys, port, up, asyncio.Event())
    finally:
        for task in watching:
            task.cancel()


class _Door:
    """A port, and what takes its connections."""

    def __init__(
        self, connections: Connections[Any], port: socket.socket, tls: TlsFiles | None, protocol: str
    ) -> None:  # Any: of either protocol
        self.connections = connections
        self.context = None if tls is None else tls.context(protocol)
        self._port = port

    async def open(self) -> asyncio.Server:
        """Let clients in."""
        handshake = None if self.context is None else self.connections.limits.request_seconds
        loop = asyncio.get_running_loop()
        return await loop.create_server(
            self.connections, sock=self._port, ssl=self.context, ssl_handshake_timeout=handshake
        )


async def serve_models(
    models: ModelManager,
    metrics: ServingMetrics,
    options: ServerOptions,
    keys: AccessKeys | None,
    port: socket.socket,
    started: Callable[[Listening], Awaitable[None]],
    ended: asyncio.Event,
) -> None:
    """Serve until SIGTERM or SIGINT, or until it is ended.

    Args:
        models: The models, not started.
        metrics: What is counted.
        options: How.
        keys: Who may ask; None: anybody.
        port: A socket that has its address, and is closed in the end; clients are refused until all is loaded.
        started: Called when the ports are open and every version that is there was tried.
        ended: Set by who ends it.
    """
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        stack.callback(port.close)
        admin = keys is not None or options.host in _LOCAL if options.admin is None else options.admin
        tracing = tracing_of(options.otlp_endpoint)
        stack.enter_context(ended_by_signals(ended))
        rest = rest_handler(models, metrics, options, keys, admin=admin, tracing=tracing)
        admit = None if keys is None else strangers_refused(rest, keys)
        connect = partial(HttpConnection, rest, admit=admit)
        doors = [_Door(Connections(connect, options.limits), port, options.tls, "http/1.1")]
        grpc_address = None
        if options.grpc_port is not None:
            # Each worker has a socket at this port: the system deals out connections, which clients keep for long.
            grpc_port = bind(options.host, options.grpc_port, option="--grpc-port", reuse_port=options.workers > 1)
            grpc_address = shown(stack.enter_context(grpc_port))
            connections = _grpc_connections(
                models, metrics, options, keys, admin=admin, tracing=tracing, rest_port=port.getsockname()[1]
            )
            doors.append(_Door(connections, grpc_port, options.tls, "h2"))
        await models.start()
        try:
            servers = [await door.open() for door in doors]
        except OSError as error:
            raise InputError("another server began to listen at a port meanwhile", fix="choose other ports") from error
        watching = [loop.create_task(door.connections.watch()) for door in doors]
        if keys is not None:
            watching.append(loop.create_task(keys.watch()))
        if options.tls is not None:
            watching.append(loop.create_task(options.tls.watch(*(door.context for door in doors if door.context))))
        try:
            address = f"{options.scheme}://{shown(port)}"
            await started(Listening(address, models.names(), models.ready, grpc_address))
            await ended.wait()
            _LOG.info("told to end")
            models.drain()
            await asyncio.sleep(options.drain_seconds)
        finally:
            for task in watching:
                task.cancel()
            for server in servers:
                server.close()
            grace = options.timeout_seconds or 30.0
            await asyncio.gather(*(door.connections.drain(grace) for door in doors))
            await models.stop(grace)
            if tracing is not None:
                await loop.run_in_executor(None, tracing.close)


def rest_handler(
    models: ModelManager,
    metrics: ServingMetrics,
    options: ServerOptions,
    keys: AccessKeys | None,
    *,
    admin: bool,
    tracing: RequestTracing | None = None,
) -> Handler:
    """What answers HTTP requests."""
    origins = frozenset(options.cors_origins)
    models.tells_names = keys is None
    handler = RestApi(models, metrics, options.timeout_seconds, admin, keys, origins, tracing)
    return CrossOrigin(handler, origins) if origins else handler


def _grpc_connections(
    models: ModelManager,
    metrics: ServingMetrics,
    options: ServerOptions,
    keys: AccessKeys | None,
    *,
    admin: bool,
    tracing: RequestTracing | None,
    rest_port: int,
) -> Connections[Any]:
    """What takes the connections of gRPC's clients."""
    # Late: the messages take a tenth of a second, for which half of the users have no need.
    from .grpc_server import grpc_handler
    from .http2 import Http2Connection

    handler = grpc_handler(
        models,
        reload=models.reload if admin else None,
        limits=options.limits,
        timeout_seconds=options.timeout_seconds,
        admin=admin,
        metrics=metrics,
        keys=keys,
        tracing=tracing,
    )
    return Connections(partial(Http2Connection, handler, rest_port=rest_port), options.limits)


def run(
    configs: Sequence[ModelConfig],
    options: ServerOptions,
    started: Callable[[Listening], None],
    resolve: Callable[[ModelConfig], ModelConfig] | None = None,
) -> None:
    """Serve on an event loop of its own, for a process that does nothing else.

    Args:
        configs: The models.
        options: How.
        started: Called when the ports are open and every version that is there was tried.
        resolve: Gives what is served of a registered model now, and is asked as often as the file is looked at; None:
            there are none, or they stay as they are.

    Raises:
        InputError: A port cannot be had, or a model's versions could never come to lie where they are to be.
        DrivetrainError: Workers cannot be started.
    """
    require_surroundings(configs)
    _raise_file_limit()
    config_file = None
    if resolve is not None:
        config_file = ConfigFile(options.config, configs, resolve)
        configs = config_file.configs
    if options.workers > 1:
        from .workers import WorkerSupervisor

        asyncio.run(WorkerSupervisor(configs, options, config_file).run(started))
        return
    port = bind(options.host, options.rest_port)
    spare_pandas()
    configure_jax()
    import uvloop

    uvloop.run(serve(configs, options, port, started, config_file))


def _raise_file_limit() -> None:
    """Have as many files open as the system allows, for this process and its workers: a connection is one.

    A shell lets its programs have 1,024, of which one client could take all.
    """
    with contextlib.suppress(ImportError, ValueError, OSError):  # not Windows; macOS refuses its own "unlimited"
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def warn_of_strangers(options: ServerOptions) -> None:
    """Say so in the log where anybody may ask who reaches the port from another machine."""
    if options.keys is None and options.host not in _LOCAL:
        _LOG.warning("listening at %s without --keys: whoever reaches the port may ask", options.host)


@contextlib.contextmanager
def ended_by_signals(ended: asyncio.Event) -> Iterator[None]:
    """While the block runs, SIGTERM and SIGINT set an event of the running loop."""
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread: a test's
                loop.add_signal_handler(number, ended.set)
                stack.callback(loop.remove_signal_handler, number)
        yield


def log_to_stderr() -> None:
    """Have what the server says written to stderr, a line each."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    _LOG.setLevel(logging.INFO)


def configure_jax() -> None:
    """Set up JAX for serving: to be called before anything is computed.

    Raises:
        DrivetrainError: JAX is not installed.
    """
    try:
        with kept_imports():
            import jax
    except ImportError as error:
        raise DrivetrainError("jax is not installed", fix="pip install 'drivetrain[serving]'") from error
    from ..engine.bundles.compile_cache import keep_compiled

    # A small program that waits for another thread takes several times as long.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]  # JAX types no option
    with contextlib.suppress(InputError):  # a home that cannot be written to: every start compiles
        keep_compiled()


def bind(host: str, port: int, *, option: str = "--rest-port", reuse_port: bool = False) -> socket.socket:
    """A socket with an address.

    Args:
        host: A name or address of this machine.
        port: 0: any that is free.
        option: Where the port comes from.
        reuse_port: Whether other sockets of this user may have the same address.

    Raises:
        InputError: Another process has it, or there is no such host here.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol: asyncio sets TCP_NODELAY only where it is named, and answers wait 40 ms without.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen at {host}:{port}: {error.strerror}", fix=f"choose another {option}") from error
    listener.setblocking(False)
    return listener


def shown(listener: socket.socket) -> str:
    """The "host:port" that a socket listens at, an IPv6 host in brackets."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
