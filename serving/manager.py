"""The models of a server: versions found, loaded, switched to, let go; whatever storage does, the last good serves."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from ..errors import DrivetrainError, suggest
from ..redaction import printable
from ..versions import versions_at
from .api import (
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    RequestError,
    StatusCode,
    VersionState,
    VersionStatus,
)
from .batching import Done
from .config import ModelConfig
from .request_log import RequestLog
from .version import LoadedVersion, load_bundle

_LOG: Final = logging.getLogger("drivetrain.serving")
_FIRST_RETRY: Final = 5.0  # seconds after which a version that failed is tried again; each time twice as many
_LAST_RETRY: Final = 300.0


@dataclass
class _Version:
    state: VersionState = VersionState.START
    code: StatusCode = StatusCode.OK
    message: str = ""
    loaded: LoadedVersion | None = None
    failures: int = 0
    retry_at: float = 0.0


@dataclass
class _ServedModel:
    config: ModelConfig
    versions: dict[int, _Version] = field(default_factory=dict)
    current: LoadedVersion | None = None  # the newest that answers
    paused: bool = False  # unloaded by request
    problem: str = ""  # why its versions cannot be listed

    def available(self) -> list[int]:
        return sorted(number for number, version in self.versions.items() if version.loaded is not None)

    def labels_of(self, number: int) -> tuple[str, ...]:
        return tuple(label for label, version in self.config.labels.items() if version == number)


class ModelManager:
    """See `Models`.

    Args:
        configs: The models.
        poll_seconds: How often their versions are looked for; 0: once, when the server starts.

    Attributes:
        request_log: Where requests and answers are logged; None: nowhere. It stays as it was at the start.

    Raises:
        InputError: Columns of the request log are to be hashed, and there is no salt.
    """

    def __init__(self, configs: Sequence[ModelConfig], *, poll_seconds: float = 1.0) -> None:
        self._models = {config.name: _ServedModel(config) for config in configs}
        self._poll_seconds = poll_seconds
        # One version is loaded at a time, by a thread that gives way to requests.
        self._loader = ThreadPoolExecutor(1, "drivetrain-load", initializer=_give_way)
        self._workers = ThreadPoolExecutor(2, "drivetrain-batch")
        self._poller: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._ending = False
        logs = {config.name: config.request_log for config in configs if config.request_log is not None}
        self.request_log = RequestLog(logs) if logs else None

    async def start(self) -> None:
        """Load what is there, then keep looking.

        Raises:
            InputError: The folder of the request log cannot be made.
        """
        if self.request_log is not None:
            self.request_log.start()
        await self._poll()
        if self._poll_seconds > 0:
            self._poller = asyncio.get_running_loop().create_task(self._poll_forever())

    def drain(self) -> None:
        """Say that the server is ending: `ready` no longer holds, and requests are still answered."""
        self._ending = True

    async def stop(self, seconds: float = 30.0) -> None:
        """Stop looking, and wait for the requests that run, at most for some seconds."""
        self._ending = True
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        loaded = [v.loaded for m in self._models.values() for v in m.versions.values() if v.loaded is not None]
        deadline = time.monotonic() + seconds
        while not all(version.idle for version in loaded) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        self._loader.shutdown(wait=False, cancel_futures=True)
        self._workers.shutdown(wait=False)
        if self.request_log is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.request_log.close)

    # --- what protocols ask ---

    @property
    def ready(self) -> bool:
        """Whether each configured model has a version that can be asked, and the server is not ending."""
        return not self._ending and all(model.current or model.paused for model in self._models.values())

    def names(self) -> list[str]:
        """Every model, by name."""
        return list(self._models)

    def has_versions(self, name: str) -> bool:
        """Whether anything is known of a model's versions."""
        return bool(self._model(name).versions)

    def statuses(self, ref: ModelRef) -> list[VersionStatus]:
        """A model's versions, the newest first; of a version or label that alone."""
        model = self._model(ref.name)
        numbers = sorted(model.versions, reverse=True)
        if ref.version is not None or ref.label is not None:
            wanted = ref.version if ref.version is not None else self._labelled(model, str(ref.label))
            if wanted not in model.versions:
                raise self._no_version(model, ref)
            numbers = [wanted]
        if not numbers and model.problem:
            raise RequestError(StatusCode.UNAVAILABLE, model.problem)
        return [
            VersionStatus(number, version.state, version.code, version.message, model.labels_of(number))
            for number in numbers
            for version in (model.versions[number],)
        ]

    def route(self, ref: ModelRef, key: str | None) -> ModelRef:
        """The reference with the version that a caller's request goes to, by its key; as it is where it names one."""
        model = self._models.get(ref.name)
        if model is None or model.config.traffic is None or ref.version is not None or ref.label is not None:
            return ref
        available = model.available()
        number = model.config.traffic.version_for(key)
        if number not in available:  # a version that cannot be asked has no share: its callers go where the rest goes
            number = next((each for each in reversed(available) if each not in model.config.traffic.shares), None)
        return ref if number is None else ModelRef(ref.name, number)

    def describe(self, ref: ModelRef) -> Described:
        """The version that a reference means."""
        return self._loaded(ref).described

    def submit(self, request: InferenceRequest, done: Done) -> None:
        """As `infer`, for those who wait by a callback, which is not called before this returns.

        Raises:
            RequestError: What can be said at once.
        """
        loaded = self._loaded(request.model)
        name, signature = loaded.described.signature(request.signature)
        if request.outputs is not None:
            for output in request.outputs:
                if output not in signature.outputs:
                    raise RequestError(
                        StatusCode.INVALID_ARGUMENT,
                        f"{name!r} has no output {output!r:.80}",
                        fix=suggest(output, [*signature.outputs]),
                    )
        log = self.request_log  # every protocol comes by here
        if log is not None and log.wants(request.model.name, request.request_id):
            done = log.recording(loaded.described, name, request, done)
        loaded.batchers[name].submit(request, done)

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        """The predictions for a request's rows."""
        future: asyncio.Future[InferenceAnswer] = asyncio.get_running_loop().create_future()

        def done(result: InferenceAnswer | RequestError) -> None:
            if future.done():  # cancelled: the client has gone
                return
            if isinstance(result, RequestError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.submit(request, done)
        return await future

    async def load(self, name: str) -> None:
        """Load a model that is configured, and return when it can be asked."""
        model = self._model(name)
        model.paused = False
        for version in model.versions.values():
            version.retry_at = 0.0
        await self._poll_model(model)
        if model.current is None:
            messages = [version.message for version in model.versions.values() if version.message]
            raise RequestError(
                StatusCode.UNAVAILABLE, f"model {name!r} cannot be loaded: {'; '.join(messages) or model.problem}"
            )

    async def unload(self, name: str) -> None:
        """Unload a model; requests that run are answered."""
        model = self._model(name)
        model.paused = True
        async with self._changing:
            for number in model.available():
                await self._let_go(model, number)

    async def configure(self, configs: Sequence[ModelConfig]) -> None:
        """Serve these models, and no others.

        A model that stays keeps its versions, which are looked for anew.
        """
        wanted = {config.name: config for config in configs}
        async with self._changing:
            for name in [name for name in self._models if name not in wanted]:
                model = self._models.pop(name)
                model.paused = True
                for number in model.available():
                    await self._let_go(model, number)
        for name, config in wanted.items():
            known = self._models.get(name)
            if known is None or known.config.base_path != config.base_path:
                self._models[name] = _ServedModel(config, current=None if known is None else known.current)
            else:
                known.config = config
        await self._poll()

    # --- which version is meant ---

    def _model(self, name: str) -> _ServedModel:
        model = self._models.get(name)
        if model is None:
            raise RequestError(
                StatusCode.NOT_FOUND,
                f"there is no model {name!r:.100}",
                fix=suggest(name, [*self._models], "the server has"),
            )
        return model

    def _loaded(self, ref: ModelRef) -> LoadedVersion:
        model = self._models.get(ref.name) or self._model(ref.name)
        if ref.version is None and ref.label is None:
            if model.current is None:
                raise RequestError(StatusCode.UNAVAILABLE, self._why_not(model))
            return model.current
        number = ref.version if ref.version is not None else self._labelled(model, str(ref.label))
        version = model.versions.get(number)
        if version is None or version.loaded is None:
            raise self._no_version(model, ref)
        return version.loaded

    def _labelled(self, model: _ServedModel, label: str) -> int:
        if label not in model.config.labels:
            raise RequestError(
                StatusCode.NOT_FOUND,
                f"model {model.config.name!r} has no label {label!r:.80}",
                fix=suggest(label, [*model.config.labels]),
            )
        return model.config.labels[label]

    def _no_version(self, model: _ServedModel, ref: ModelRef) -> RequestError:
        which = f"version {ref.version}" if ref.version is not None else f"version with the label {ref.label!r:.80}"
        served = ", ".join(map(str, model.available())) or "none"
        return RequestError(StatusCode.NOT_FOUND, f"model {ref.name!r} serves no {which}", fix=f"it serves {served}")

    def _why_not(self, model: _ServedModel) -> str:
        name = model.config.name
        if model.paused:
            return f"model {name!r} is unloaded"
        failed = [f"version {number}: {each.message}" for number, each in model.versions.items() if each.message]
        if failed:
            return f"model {name!r} has no version that can be used ({'; '.join(failed):.500})"
        return model.problem or f"model {name!r} has no version yet"

    # --- versions that come and go ---

    async def _poll_forever(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await self._poll()
            except Exception:  # it must go on whatever happens
                _LOG.exception("looking for versions failed")

    async def _poll(self) -> None:
        await asyncio.gather(*(self._poll_model(model) for model in list(self._models.values())))

    async def _poll_model(self, model: _ServedModel) -> None:
        loop = asyncio.get_running_loop()
        base_path = model.config.base_path
        try:
            numbers = await loop.run_in_executor(None, lambda: versions_at(base_path).numbers())
        except (DrivetrainError, OSError) as error:
            self._say(model, printable(f"{base_path} cannot be listed: {_line(error)}"))
            return
        if not numbers:
            self._say(model, printable(f"{base_path} has no versions"))
            return  # storage that is gone for a while takes nothing away
        model.problem = ""
        async with self._changing:
            if model.paused:
                return
            wanted = model.config.wanted(numbers)
            for number in wanted:
                version = model.versions.setdefault(number, _Version())
                if version.loaded is None and version.retry_at <= time.monotonic():
                    await self._load(model, number, version)
            serving = set(model.available())
            if serving & set(wanted):
                for number in sorted(serving - set(wanted)):
                    await self._let_go(model, number)
            for number in [number for number, version in model.versions.items() if number not in numbers]:
                if model.versions[number].loaded is None:
                    del model.versions[number]

    def _say(self, model: _ServedModel, problem: str) -> None:
        if problem != model.problem:
            _LOG.warning("model %s: %s", model.config.name, problem)
        model.problem = problem

    async def _load(self, model: _ServedModel, number: int, version: _Version) -> None:
        config = model.config
        version.state, version.code, version.message = VersionState.LOADING, StatusCode.OK, ""
        loop = asyncio.get_running_loop()
        start = time.monotonic()
        try:
            described, bundle, seconds = await loop.run_in_executor(
                self._loader, load_bundle, config.name, config.base_path, number
            )
            loaded = LoadedVersion(described, bundle, seconds, config.batching, self._workers)
        except Exception as error:  # bytes of others are read: whatever they cause, what serves goes on
            version.failures += 1
            wait = min(_FIRST_RETRY * 2 ** (version.failures - 1), _LAST_RETRY)
            version.retry_at = time.monotonic() + wait
            version.state, version.code = VersionState.END, StatusCode.FAILED_PRECONDITION
            version.message = printable(_line(error))
            _LOG.error("model %s version %d: %s", config.name, number, version.message)
            return
        gc.freeze()  # what was loaded stays: looking through it again and again holds up requests by milliseconds
        version.loaded, version.state, version.failures = loaded, VersionState.AVAILABLE, 0
        self._switch(model)
        if self.request_log is not None:
            self.request_log.check(described)
        _LOG.info("model %s version %d serves after %.2f s", config.name, number, time.monotonic() - start)

    async def _let_go(self, model: _ServedModel, number: int) -> None:
        version = model.versions[number]
        loaded, version.loaded, version.state = version.loaded, None, VersionState.UNLOADING
        self._switch(model)
        while loaded is not None and not loaded.idle:
            await asyncio.sleep(0.005)
        version.state = VersionState.END
        _LOG.info("model %s version %d is unloaded", model.config.name, number)

    def _switch(self, model: _ServedModel) -> None:
        available = model.available()
        model.current = model.versions[available[-1]].loaded if available else None


def _give_way() -> None:
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # of this thread alone, on Linux


def _line(error: BaseException) -> str:
    """An error in one line."""
    text = error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:1000]
