"""Several processes at one port: started, told alike what to serve, replaced when they die, ended together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from ..errors import DrivetrainError, InputError
from .access import AccessKeys
from .api import RequestError
from .channel import Channel
from .config import ModelConfig, SigningKeys
from .config_file import ConfigFile
from .request_log import RequestLog
from .rollout import RoutePlan
from .rollout_control import ModelSight, RolloutControl, look_forever
from .server import Listening, ServerOptions, bind, ended_by_signals, shown, warn_of_strangers
from .worker import WorkerSetup

_LOG: Final = logging.getLogger("drivetrain.serving")
_SOON: Final = 10.0  # seconds: a worker that lives shorter is not replaced at once
_LONGEST_WAIT: Final = 30.0
_SIGHT_SECONDS: Final = 5.0  # for a worker to say what it sees of rollouts
_FOLLOW_SECONDS: Final = 5.0  # for a worker to follow the plans of rollouts, before it is told again
_SOON_ANSWERED: Final = 1.0  # seconds for an answer, before a worker is asked whether it still answers anything
_HANGS: Final = 4.0  # seconds without that answer, after which nobody waits for it any more
_UNHEARD: Final = 30.0  # seconds after which a worker that answers nothing is killed


@dataclass(eq=False)
class _Worker:
    """A worker that runs.

    Attributes:
        name: Which it is.
        process: Its process.
        channel: To it.
        plans: Those of the rollouts that it has said it follows; None: it was told others, and has not said so yet.
        hangs: Whether it answered nothing when it was last waited for.
    """

    name: str
    process: asyncio.subprocess.Process
    channel: Channel
    plans: dict[str, RoutePlan] | None = None
    hangs: bool = False


class WorkerSupervisor:
    """Keeps workers that share the ports of one server; each has every model, and the system gives it its connections.

    Args:
        configs: The models.
        options: How to serve; `workers` says how many.
        config_file: What says while they run which models there are; None: the file of the options, if any.

    Raises:
        InputError: A key for signatures cannot be used.
    """

    def __init__(
        self, configs: Sequence[ModelConfig], options: ServerOptions, config_file: ConfigFile | None = None
    ) -> None:
        self._configs = list(configs)
        self._options = options
        self._signing_keys = SigningKeys(configs, options.require_signed)
        self._unloaded: set[str] = set()
        self._workers: set[_Worker] = set()
        self._informed: set[_Worker] = set()  # those that were told what to serve: changes go to them
        self._changing = asyncio.Lock()
        self._ended = asyncio.Event()
        self._rollouts = RolloutControl(())
        self._config_file = config_file or (ConfigFile(options.config, configs) if options.config is not None else None)
        self._keys: AccessKeys | None = None
        self._ready: dict[str, bool] = {}
        self._up = asyncio.Event()

    async def run(self, started: Callable[[Listening], None]) -> None:
        """Serve until SIGTERM or SIGINT.

        Args:
            started: Called when every worker is up.

        Raises:
            InputError: A port cannot be had, or this system cannot share one.
            DrivetrainError: A worker ended before it was up.
        """
        if not sys.platform.startswith("linux"):
            raise InputError("only Linux shares a port out among processes", fix="start one worker")
        # What every worker would be refused for is looked at beforehand.
        RequestLog({config.name: config.request_log for config in self._configs if config.request_log is not None})
        self._rollouts.configure(self._configs)
        if self._options.keys is not None:
            self._keys = AccessKeys(self._options.keys)
        if self._options.tls is not None:
            self._options.tls.context()
        warn_of_strangers(self._options)
        with contextlib.ExitStack() as stack:
            # One socket that all accept from: what waits at it when a worker dies is answered by the others.
            self._port = stack.enter_context(bind(self._options.host, self._options.rest_port))
            grpc_address = None
            if self._options.grpc_port is not None:
                grpc = stack.enter_context(_reserved(self._options.host, self._options.grpc_port, "--grpc-port"))
                self._options = replace(self._options, grpc_port=grpc.getsockname()[1])
                grpc_address = shown(grpc)
            stack.enter_context(ended_by_signals(self._ended))
            keeping = [asyncio.create_task(self._keep(str(index))) for index in range(self._options.workers)]
            watching = [asyncio.create_task(self._watch())]
            try:
                if await self._all_up(keeping):
                    await self._decide()
                    watching.append(asyncio.create_task(look_forever(self._decide)))
                    if self._config_file is not None:
                        seconds = self._options.config_poll_seconds
                        watching.append(asyncio.create_task(self._config_file.watch(self._configure, seconds)))
                    ready = all(self._ready.values())
                    names = [config.name for config in self._configs]
                    started(Listening(f"{self._options.scheme}://{shown(self._port)}", names, ready, grpc_address))
                    await self._ended.wait()
                    _LOG.info("told to end")
            finally:
                self._ended.set()
                for task in watching:
                    task.cancel()
                self._port.close()  # the workers' own go on until they have drained
                self._signal(signal.SIGTERM)
                grace = self._options.drain_seconds + 2 * (self._options.timeout_seconds or 30.0) + _UNHEARD
                await asyncio.wait(keeping, timeout=grace)
                self._signal(signal.SIGKILL)
                await asyncio.gather(*keeping, return_exceptions=True)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)

    async def _watch(self) -> None:
        """End workers that no longer answer, for ever; others take their places."""
        while True:
            await asyncio.sleep(_UNHEARD / 6)
            await asyncio.gather(*(self._listen_for(worker) for worker in [*self._informed]))

    async def _decide(self) -> None:
        """Have each rollout decided on by what all workers see together, and tell them."""
        if not self._rollouts:
            return
        asked = [asyncio.wait_for(worker.channel.ask("sights"), _SIGHT_SECONDS) for worker in self._informed]
        together: dict[str, ModelSight] = {}
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if not isinstance(answer, BaseException):  # one that dies, or has not begun to answer, is left out
                for name, sight in msgspec.convert(answer, dict[str, ModelSight], str_keys=True).items():
                    together.setdefault(name, ModelSight()).add(sight)
        async with self._changing:
            await asyncio.get_running_loop().run_in_executor(None, self._rollouts.look, together)
            plans = self._rollouts.plans()
        await self._tell(plans)

    async def _tell(self, plans: dict[str, RoutePlan]) -> None:
        """Have the workers that do not follow these plans yet do so, none of them waiting for another.

        One that does not say so in time, or refuses, is told again at the next look. Not to be called under the lock of
        changes, which a worker that hangs would hold.
        """
        await asyncio.gather(*(self._have_follow(each, plans) for each in self._informed if each.plans != plans))

    async def _have_follow(self, worker: _Worker, plans: dict[str, RoutePlan]) -> None:
        worker.plans = None
        try:
            await asyncio.wait_for(worker.channel.ask("follow", msgspec.to_builtins(plans)), _FOLLOW_SECONDS)
        except TimeoutError:
            _LOG.error("worker %s has not said for %g s that it follows the rollouts", worker.name, _FOLLOW_SECONDS)
        except RequestError as error:
            _LOG.error("worker %s does not follow the rollouts: %s", worker.name, error.message)
        except ConnectionError:
            pass  # the one that takes its place is told when it starts
        else:
            worker.plans = plans

    async def _listen_for(self, worker: _Worker) -> None:
        try:
            await asyncio.wait_for(worker.channel.ask("counts"), _UNHEARD)
        except TimeoutError:
            _LOG.error("worker %s has not answered for %g s and is killed", worker.name, _UNHEARD)
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
        except (RequestError, ConnectionError):
            pass  # it lives, or is known to be dead

    async def _all_up(self, keeping: Sequence[asyncio.Task[None]]) -> bool:
        """Wait until all workers are up, and say whether they are; a worker that cannot be started is raised."""
        waiting = [asyncio.create_task(self._up.wait()), asyncio.create_task(self._ended.wait())]
        try:
            done, _ = await asyncio.wait([*waiting, *keeping], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in waiting:
                task.cancel()
        return not self._ended.is_set()

    async def _keep(self, name: str) -> None:
        """Have a worker of this name run until the server is ended."""
        soon = 0
        while not self._ended.is_set():
            start = time.monotonic()
            try:
                how = f"ended with code {await self._run_one(name)}"
            except OSError as error:  # too many files are open, say
                how = f"could not be started ({error})"
            if self._ended.is_set():
                return
            if not self._up.is_set():
                raise DrivetrainError(f"worker {name} {how} before it was up", fix="see the log above")
            soon = soon + 1 if time.monotonic() - start < _SOON else 0
            wait = min(2.0 ** (soon - 2), _LONGEST_WAIT) if soon > 1 else 0.0
            _LOG.error("worker %s %s; another takes its place in %g s", name, how, wait)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), wait)

    async def _run_one(self, name: str) -> int:
        """Start a worker, and wait until it has ended."""
        mine, its = socket.socketpair()
        with contextlib.ExitStack() as not_started, its:
            not_started.callback(mine.close)
            passed = [its.fileno(), self._port.fileno()]
            # A group of its own: Ctrl-C at the terminal is for the supervisor to pass on.
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "drivetrain.serving.worker", *map(str, passed),
                pass_fds=passed, stdin=asyncio.subprocess.DEVNULL, process_group=0,
                # On a GPU the first would else take three quarters of the memory in advance.
                env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ},
            )  # fmt: skip

            not_started.pop_all()

        async def answer(question: str, value: Any) -> Any:
            return await self._answer(worker, question, value)

        worker = _Worker(name, process, Channel(answer))
        self._workers.add(worker)
        if self._ended.is_set():  # since it was being made
            process.terminate()
        try:
            listening = await worker.channel.open(mine)
            code = await process.wait()
            await listening
        finally:
            self._workers.discard(worker)
            self._informed.discard(worker)
        return code

    async def _answer(self, worker: _Worker, question: str, value: Any) -> Any:
        match question:
            case "setup":
                # Under the lock: what is changed meanwhile is either told here or asked of it later.
                async with self._changing:
                    self._informed.add(worker)
                    if self._keys is not None:
                        self._keys.look()
                    keys = None if self._keys is None else self._keys.text
                    worker.plans = self._rollouts.plans()
                    setup = WorkerSetup(
                        worker.name, self._configs, sorted(self._unloaded), self._options, keys, worker.plans
                    )
                    return msgspec.to_builtins(setup, str_keys=True, enc_hook=str)  # of paths
            case "started":
                self._ready[worker.name] = value["ready"]
                if len(self._ready) == self._options.workers:
                    self._up.set()
                return None
            case "counts":
                return await self._of_all("counts", None)
            case "config":
                return None if self._config_file is None else self._config_file.is_served
            case "rollouts":
                return self._rollouts.statuses()
            case "rollout":
                async with self._changing:
                    await asyncio.get_running_loop().run_in_executor(None, self._rollouts.act, *value)
                    plans = self._rollouts.plans()
                await self._tell(plans)
                return None
            case _:
                return await self._change(question, value)

    async def _configure(self, configs: Sequence[ModelConfig]) -> None:
        await self._change("configure", msgspec.to_builtins(list(configs), str_keys=True))

    async def _change(self, what: str, value: Any) -> None:
        """Change what every worker serves, and every worker that starts later."""
        async with self._changing:
            if what == "load":  # what cannot be loaded now is looked for from now on
                self._unloaded.discard(value)
            elif what == "configure":
                configs = msgspec.convert(value, list[ModelConfig], str_keys=True)
                self._rollouts.configure(configs)  # first: a state that is damaged leaves all as it is
            await self._of_all(what, value)
            if what == "unload":
                self._unloaded.add(value)
            elif what == "configure":
                # A request log stays as it was at the start.
                logs = {config.name: config.request_log for config in self._configs}
                configs = [replace(config, request_log=logs.get(config.name)) for config in configs]
                self._configs = self._signing_keys.applied(configs)
                self._unloaded &= {config.name for config in self._configs}
            plans = self._rollouts.plans()
        await self._tell(plans)

    async def _of_all(self, question: str, value: Any) -> list[Any]:
        """The answers of all workers; those of workers that die or hang are left out.

        One that hangs has been asked: it does what it is told when it goes on, or another takes its place.

        Raises:
            RequestError: What the first of them raised.
        """
        workers = sorted(self._informed, key=lambda each: each.name)
        asked = [self._unless_it_hangs(worker, question, value) for worker in workers]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for worker, answer in zip(workers, answers, strict=True):
            if isinstance(answer, RequestError):
                raise answer
            if isinstance(answer, TimeoutError):
                _LOG.error("worker %s hangs; nobody waits for what it says to %r", worker.name, question)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def _unless_it_hangs(self, worker: _Worker, question: str, value: Any) -> Any:
        """A worker's answer, which may take minutes, to load a model, as long as it answers something else meanwhile.

        Raises:
            TimeoutError: It answers nothing.
            RequestError, ConnectionError: As of `Channel.ask`.
        """
        answer = asyncio.create_task(worker.channel.ask(question, value))
        try:
            while not (await asyncio.wait([answer], timeout=_SOON_ANSWERED))[0]:
                await asyncio.wait_for(worker.channel.ask("counts"), _SOON_ANSWERED if worker.hangs else _HANGS)
                worker.hangs = False
            worker.hangs = False
            return answer.result()
        except TimeoutError:
            worker.hangs = True
            raise
        finally:
            answer.cancel()


@contextlib.contextmanager
def _reserved(host: str, port: int, option: str) -> Iterator[socket.socket]:
    """A socket that holds a port for workers, and does not listen itself."""
    with bind(host, port, option=option) as alone:  # refused where another server listens
        port = alone.getsockname()[1]
    with bind(host, port, option=option, reuse_port=True) as shared, socket.socket(socket.AF_UNIX) as lock:
        # Another supervisor, whose workers do not listen yet, holds this name, which ends with its process.
        try:
            lock.bind(f"\0drivetrain-serve-{host}-{port}")
        except OSError as error:
            raise InputError(
                f"another server is about to listen at port {port}", fix=f"choose another {option}"
            ) from error
        yield shared
