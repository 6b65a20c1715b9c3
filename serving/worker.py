"""A worker: one of the processes at a server's ports, which `WorkerSupervisor` starts and tells what to serve."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ..data.arrays import spare_pandas
from ..errors import DrivetrainError
from .access import AccessKeys
from .channel import Channel
from .config import ModelConfig
from .manager import ModelManager
from .metrics import ProcessCounts, ServingMetrics
from .rollout import RoutePlan
from .server import Listening, ServerOptions, configure_jax, log_to_stderr, serve_models

_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is told when it starts.

    Attributes:
        name: Which worker it is, for the log and the metrics.
        configs: The models.
        unloaded: Those that clients had unloaded.
        options: How to serve, with the ports that the supervisor holds.
        keys: What the file of keys held when it was last in order; None: anybody may ask.
        plans: Of the rollouts, by model.
    """

    name: str
    configs: list[ModelConfig]
    unloaded: list[str]
    options: ServerOptions
    keys: str | None = None
    plans: dict[str, RoutePlan] = field(default_factory=dict)


class _SharedModels(ModelManager):
    """The models of one worker; what a client changes is changed in all of them, by way of the supervisor."""

    def __init__(self, setup: WorkerSetup, supervisor: Channel) -> None:
        options = setup.options
        super().__init__(
            setup.configs,
            poll_seconds=options.poll_seconds,
            unloaded=setup.unloaded,
            require_signed=options.require_signed,
            most_bytes=options.memory_bytes,
            plans=setup.plans,
        )
        self._supervisor = supervisor

    async def load(self, name: str) -> None:
        await self._supervisor.ask("load", name)

    async def unload(self, name: str) -> None:
        await self._supervisor.ask("unload", name)

    async def configure(self, configs: Sequence[ModelConfig]) -> None:
        await self._supervisor.ask("configure", msgspec.to_builtins(list(configs), str_keys=True))

    async def rollout_statuses(self) -> list[dict[str, Any]]:  # Any: JSON
        statuses: list[dict[str, Any]] = await self._supervisor.ask("rollouts")
        return statuses

    async def is_config_served(self) -> bool | None:
        is_served: bool | None = await self._supervisor.ask("config")
        return is_served

    async def act_on_rollout(self, name: str, action: str, version: int | None = None) -> None:
        await self._supervisor.ask("rollout", [name, action, version])

    async def change(self, what: str, value: Any) -> None:
        """What the supervisor asks of each worker."""
        if what == "load":
            await super().load(value)
        elif what == "unload":
            await super().unload(value)
        elif what == "follow":
            self.follow(msgspec.convert(value, dict[str, RoutePlan]))
        else:
            await super().configure(msgspec.convert(value, list[ModelConfig], str_keys=True))


class _SharedMetrics(ServingMetrics):
    """The counts of one worker; whoever asks for metrics gets those of all."""

    def __init__(self, supervisor: Channel) -> None:
        super().__init__()
        self._supervisor = supervisor

    async def everywhere(self, models: ModelManager) -> list[ProcessCounts]:
        return msgspec.convert(await self._supervisor.ask("counts"), list[ProcessCounts])


async def work(end: socket.socket, port: socket.socket) -> None:
    """Serve until told to end, or until the supervisor is gone.

    Args:
        end: The socket to the supervisor.
        port: That of all workers, which the supervisor has listen when the first of them is up.
    """
    prepared: asyncio.Future[tuple[_SharedModels, _SharedMetrics]] = asyncio.get_running_loop().create_future()

    async def answer(question: str, value: Any) -> Any:
        models, metrics = await prepared
        if question == "counts":
            return msgspec.to_builtins(metrics.counts(models, setup.name))
        if question == "sights":
            return msgspec.to_builtins(models.sights(), str_keys=True)
        await models.change(question, value)
        return None

    supervisor = Channel(answer)
    listening = await supervisor.open(end)
    setup = msgspec.convert(await supervisor.ask("setup"), WorkerSetup, str_keys=True, dec_hook=_path_of)
    metrics = _SharedMetrics(supervisor)
    models = _SharedModels(setup, supervisor)
    prepared.set_result((models, metrics))
    ended = asyncio.Event()
    listening.add_done_callback(lambda _: ended.set())

    async def started(at: Listening) -> None:
        await supervisor.ask("started", {"ready": at.ready})

    path = setup.options.keys
    keys = AccessKeys(path, setup.keys) if path is not None and setup.keys is not None else None
    await serve_models(models, metrics, setup.options, keys, port, started, ended)


def _path_of(kind: type, text: Any) -> Any:
    return kind(text)  # of Path, the only type that JSON has no form of


def main() -> None:
    """Work for the supervisor: the arguments are the file descriptors of the socket to it, and of the port."""
    import uvloop

    log_to_stderr()
    spare_pandas()
    configure_jax()
    end, port = (socket.socket(fileno=int(descriptor)) for descriptor in sys.argv[1:3])
    try:
        uvloop.run(work(end, port))
    except (DrivetrainError, ConnectionError) as error:  # it is told what is wrong, or the supervisor is gone
        _LOG.error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
