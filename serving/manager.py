"""The models of a server: versions found, loaded, switched to, let go; whatever storage does, the last good serves."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..addresses import local_path
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
from .batching import Done, as_request_error, on_time
from .config import ModelConfig, SigningKeys, kept
from .config_file import ConfigFile
from .explanation import ExplanationRequest, RowExplainer
from .request_log import RequestLog
from .rollout import RoutePlan
from .rollout_control import ModelSight, RolloutControl, look_forever
from .shadow import ShadowRunner, is_chosen
from .traffic import TrafficSplit
from .version import LoadedVersion, Prepared, check_files, compile_bundle, prepare, read_bundle
from .version_tally import VersionRecorder
from .warmup import WarmUpResult, warm_up_version

_LOG: Final = logging.getLogger("drivetrain.serving")
_FIRST_RETRY: Final = 5.0  # seconds after which a version that failed is tried again; each time twice as many
_LAST_RETRY: Final = 300.0
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h


@dataclass
class _Version:
    state: VersionState = VersionState.START
    code: StatusCode = StatusCode.OK
    message: str = ""
    prepared: Prepared | None = None  # what can be asked of it, where it can be
    loaded: LoadedVersion | None = None  # None where it is asleep: a request wakes it
    used: float = 0.0  # when it was asked last, by `time.monotonic`
    waiting: list[tuple[InferenceRequest, Done]] = field(default_factory=list)  # for it to wake
    waiting_rows: int = 0
    failures: int = 0
    retry_at: float = 0.0

    @property
    def size(self) -> int:
        """Bytes that it takes, or will."""
        return 0 if self.prepared is None else self.prepared.size

    def fail(self, error: BaseException) -> None:
        """It cannot be used: for a while nobody tries again."""
        self.failures += 1
        self.retry_at = time.monotonic() + min(_FIRST_RETRY * 2 ** (self.failures - 1), _LAST_RETRY)
        self.prepared, self.loaded = None, None
        self.state, self.code = VersionState.END, StatusCode.FAILED_PRECONDITION
        self.message = printable(_line(error))

    @property
    def idle(self) -> bool:
        return not self.waiting and (self.loaded is None or self.loaded.idle)


@dataclass
class _ServedModel:
    config: ModelConfig
    versions: dict[int, _Version] = field(default_factory=dict)
    current: _Version | None = None  # the newest that answers
    paused: bool = False  # unloaded by request
    problem: str = ""  # why its versions cannot be listed
    plan: RoutePlan = field(default_factory=RoutePlan)  # of its rollout
    split: TrafficSplit | None = None  # which version a request goes to
    recorders: dict[int, VersionRecorder] = field(default_factory=dict)  # of a model with a rollout

    def route_by(self, config: ModelConfig, plan: RoutePlan) -> None:
        """Send requests where a configuration and the plan of its rollout say."""
        self.config, self.plan, self.split = config, plan, config.traffic
        if config.rollout is not None and plan.candidate is not None:
            self.split = TrafficSplit({plan.candidate: plan.share}, config.name)

    def usable(self) -> list[int]:
        """Versions for requests that name none: none that failed or is a shadow, while there are others."""
        available = self.available()
        shadow = self.config.shadow.version if self.config.shadow is not None else None
        usable = [
            number
            for number in available
            if number != shadow and (number, self.digest_of(number)) not in self.plan.failed
        ]
        return usable or available

    def digest_of(self, number: int) -> str:
        """Of the bundle of a version that can be asked."""
        prepared = self.versions[number].prepared
        return "" if prepared is None else prepared.described.digest

    def available(self) -> list[int]:
        return sorted(number for number, version in self.versions.items() if version.prepared is not None)

    def labels_of(self, number: int) -> tuple[str, ...]:
        return tuple(label for label, version in self.config.labels.items() if version == number)


class ModelManager:
    """See `Models`.

    Args:
        configs: The models.
        poll_seconds: How often their versions are looked for; 0: once, when the server starts.
        unloaded: The models that are not loaded until `load` asks for them.
        require_signed: The file of the public key that must have signed the versions of models that name none; None:
            those need not be signed.
        most_bytes: What the versions in memory may take together, by the size of their files. Those that were not asked
            for longest are put to sleep, and woken by the next request. None: all stay in memory.
        plans: Of the rollouts, where another process decides on them, and calls `follow`; None: this one does.

    Attributes:
        request_log: Where requests and answers are logged; None: nowhere. It stays as it was at the start.

    Raises:
        InputError: Columns of the request log are to be hashed, and there is no salt; a key cannot be used; or the
            state of a rollout cannot be kept, or is damaged.
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        *,
        poll_seconds: float = 1.0,
        unloaded: Collection[str] = (),
        require_signed: Path | None = None,
        most_bytes: int | None = None,
        plans: Mapping[str, RoutePlan] | None = None,
    ) -> None:
        self._signing_keys = SigningKeys(configs, require_signed)
        configs = self._signing_keys.applied(configs)
        self._models = {config.name: _ServedModel(config, paused=config.name in unloaded) for config in configs}
        self._decides = plans is None
        self._rollouts = RolloutControl(configs if plans is None else ())
        self.follow(self._rollouts.plans() if plans is None else plans)
        self._deciding = asyncio.Lock()
        self._decider: asyncio.Task[None] | None = None
        self._shadow_thread = ThreadPoolExecutor(1, "drivetrain-shadow")
        self.shadows = ShadowRunner(self._shadow_thread)
        self._explainer = RowExplainer()
        self._poll_seconds = poll_seconds
        # A version that replaces one is loaded by a thread that gives way to requests; for any other, requests wait.
        self._replacer = ThreadPoolExecutor(1, "drivetrain-replace", initializer=_give_way)
        self._loader = ThreadPoolExecutor(1, "drivetrain-load")
        self._workers = ThreadPoolExecutor(2, "drivetrain-batch")
        self._poller: asyncio.Task[None] | None = None
        self._most_bytes = most_bytes
        if most_bytes is not None:
            _return_large_blocks()
        self._waking: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._reading = asyncio.Lock()  # room is made for one version at a time
        self._ending = False
        self.config_file: ConfigFile | None = None  # what the configurations are read from while the server runs
        self.tells_names = True  # whether an error about a model that is not there lists those that are
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
        await self._decide()
        loop = asyncio.get_running_loop()
        self._decider = loop.create_task(look_forever(self._decide))
        if self._poll_seconds > 0:
            self._poller = loop.create_task(self._poll_forever())

    def drain(self) -> None:
        """Say that the server is ending: `ready` no longer holds, and requests are still answered."""
        self._ending = True

    async def stop(self, seconds: float = 30.0) -> None:
        """Stop looking, and wait for the requests that run, at most for some seconds."""
        self._ending = True
        tasks = [task for task in (self._poller, self._decider) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        versions = [version for model in self._models.values() for version in model.versions.values()]
        deadline = time.monotonic() + seconds
        while not all(version.idle for version in versions) and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        for executor in (self._loader, self._replacer, self._shadow_thread):
            executor.shutdown(wait=False, cancel_futures=True)
        self._workers.shutdown(wait=False)
        self._explainer.close()
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

    def configs(self) -> list[ModelConfig]:
        """How each model is configured now."""
        return [model.config for model in self._models.values()]

    def config(self, name: str) -> ModelConfig:
        """How a model is configured now."""
        return self._model(name).config

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
        if model is None or model.split is None or ref.version is not None or ref.label is not None:
            return ref
        number = model.split.version_for(key)
        if number is None or number not in model.versions or model.versions[number].prepared is None:
            # A version that cannot be asked has no share: its callers go where the rest goes.
            if model.config.rollout is not None:
                return ref  # to the current version, which is the incumbent
            number = next((each for each in reversed(model.usable()) if each not in model.split.shares), None)
        return ref if number is None else ModelRef(ref.name, number)

    def describe(self, ref: ModelRef) -> Described:
        """The version that a reference means."""
        return self._asked(ref)[1].described

    def submit(self, request: InferenceRequest, done: Done) -> None:
        """As `infer`, for those who wait by a callback, which is not called before this returns.

        Raises:
            RequestError: What can be said at once.
        """
        version, prepared = self._asked(request.model)
        name, signature = prepared.described.signature(request.signature)
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
            done = log.recording(prepared.described, name, request, done)
        model = self._models[request.model.name]
        if model.config.shadow is not None and is_chosen(model.config.shadow.sample):
            done = self._shadowing(model, version, prepared.described, name, request, done)
        recorder = self._recorder(model, prepared.described.version)
        if recorder is not None:
            done = recorder.recording(done)
        if self._most_bytes is not None:
            version.used = time.monotonic()
        try:
            if version.loaded is None:
                request.signature = name
                self._wake(version, prepared, request, done)
            else:
                version.loaded.batchers[name].submit(request, done)
        except RequestError as error:
            if recorder is not None:
                recorder.refused(error.code)
            raise

    def _recorder(self, model: _ServedModel, number: int) -> VersionRecorder | None:
        """What counts the requests of a version, of a model with a rollout."""
        if model.config.rollout is None:
            return None
        recorder = model.recorders.get(number)
        if recorder is None:
            recorder = model.recorders[number] = VersionRecorder()
        return recorder

    def _shadowing(
        self,
        model: _ServedModel,
        version: _Version,
        described: Described,
        signature: str,
        request: InferenceRequest,
        done: Done,
    ) -> Done:
        """`done`, or what has a shadow answer after it."""
        options = model.config.shadow
        assert options is not None
        number = model.plan.candidate if options.version is None else options.version
        if number is None or number == described.version:
            return done
        queue = version.loaded.batchers[signature] if version.loaded is not None else None
        shadow = model.versions[number].loaded if number in model.versions else None
        return self.shadows.shadowing(options, described, number, shadow, signature, request, done, queue)

    def refuse(self, ref: ModelRef, code: StatusCode) -> None:
        """Count a request that was refused before it was submitted, by the version that it was routed to."""
        with contextlib.suppress(RequestError):
            recorder = self._recorder(self._model(ref.name), self._asked(ref)[1].described.version)
            if recorder is not None:
                recorder.refused(code)

    async def infer(self, request: InferenceRequest) -> InferenceAnswer:
        """The predictions for a request's rows."""
        return await _answer(lambda done: self.submit(request, done))

    async def explain(self, ref: ModelRef, request: ExplanationRequest, seconds: float | None) -> dict[str, Any]:
        """The explanation of a row, as JSON: see `explanation.RowExplainer`.

        It is no request for predictions: nothing is logged or counted, and no guard hears of it.
        """
        version, prepared = self._asked(ref)
        version.used = time.monotonic()
        loaded = version.loaded
        if loaded is None:
            deadline = None if seconds is None else time.monotonic() + seconds
            row = InferenceRequest(ref, request.signature, request.row, 1, deadline=deadline)
            await _answer(lambda done: self._wake(version, prepared, row, done))
            loaded = version.loaded
        if loaded is None:
            message = f"model {ref.name!r} had to leave memory again before its row was explained"
            raise RequestError(StatusCode.UNAVAILABLE, message, fix="try again")
        return await self._explainer.explain(request, loaded, seconds)

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
            model.current = None  # it may be of a path that was configured before

    async def reload(self, configs: Sequence[ModelConfig]) -> None:
        """`configure` in TensorFlow Serving's words: what these cannot say of a model stays as it is."""
        before = {config.name: config for config in self.configs()}
        await self.configure([kept(config, before.get(config.name)) for config in configs])

    async def configure(self, configs: Sequence[ModelConfig]) -> None:
        """Serve these models, and no others.

        A model that stays keeps its versions, which are looked for anew.

        Raises:
            InputError: The state of a rollout cannot be kept, or is damaged; nothing has changed.
        """
        wanted = {config.name: config for config in self._signing_keys.applied(configs)}
        if self._decides:
            async with self._deciding:
                self._rollouts.configure([*wanted.values()])
        async with self._changing:
            for name in [name for name in self._models if name not in wanted]:
                model = self._models.pop(name)
                model.paused = True
                for number in model.available():
                    await self._let_go(model, number)
        for name, config in wanted.items():
            known = self._models.get(name)
            if known is None or known.config.base_path != config.base_path:
                self._models[name] = _ServedModel(config)
                if known is not None:  # the old path's answers until the new one has
                    self._models[name].current, self._models[name].paused = known.current, known.paused
            else:
                known.config = config
        if self._decides:
            self.follow(self._rollouts.plans())
        else:
            self.follow({name: model.plan for name, model in self._models.items()})
        await self._poll()
        await self._decide()

    async def is_config_served(self) -> bool | None:
        """Whether the models are as the file of their configurations says; None: none is looked at."""
        return None if self.config_file is None else self.config_file.is_served

    # --- rollouts ---

    def follow(self, plans: Mapping[str, RoutePlan]) -> None:
        """Send requests where these plans say, by model."""
        for name, model in self._models.items():
            model.route_by(model.config, plans.get(name, RoutePlan()))
            if model.available():  # else it may still answer from a path that was configured before
                self._switch(model)

    def sights(self) -> dict[str, ModelSight]:
        """What is seen of each model with a rollout, since the last time."""
        return {
            name: ModelSight(
                {number: model.digest_of(number) for number in model.available()},
                {number: tally for number, each in model.recorders.items() if (tally := each.take()).requests},
            )
            for name, model in self._models.items()
            if model.config.rollout is not None
        }

    async def rollout_statuses(self) -> list[dict[str, Any]]:  # Any: JSON
        """How far each rollout is."""
        return self._rollouts.statuses()

    async def act_on_rollout(self, name: str, action: str, version: int | None = None) -> None:
        """Do what an operator wants with a model's rollout: see `rollout_control.RolloutAction`."""
        self._model(name)
        async with self._deciding:
            await asyncio.get_running_loop().run_in_executor(None, self._rollouts.act, name, action, version)
            self.follow(self._rollouts.plans())

    async def _decide(self) -> None:
        """Have each rollout decided on, in a thread: it writes a file."""
        if not self._rollouts:
            return
        async with self._deciding:
            sights = self.sights()
            if await asyncio.get_running_loop().run_in_executor(None, self._rollouts.look, sights):
                self.follow(self._rollouts.plans())

    def traffic_of(self, name: str) -> dict[str, Any]:  # Any: JSON
        """Which version has which share of a model's requests that name none."""
        model = self._model(name)
        current = model.current.prepared.described.version if model.current and model.current.prepared else None
        shares = model.split.shares if model.split is not None else {}
        shadow = model.config.shadow
        return {
            "model": name,
            "current": current,
            "shares": {str(number): share for number, share in shares.items()},
            "shadow": None if shadow is None else shadow.version or model.plan.candidate,
        }

    # --- which version is meant ---

    def _model(self, name: str) -> _ServedModel:
        model = self._models.get(name)
        if model is None:
            raise RequestError(
                StatusCode.NOT_FOUND,
                f"there is no model {name!r:.100}",
                fix=suggest(name, [*self._models], "the server has") if self.tells_names else None,
            )
        return model

    def _asked(self, ref: ModelRef) -> tuple[_Version, Prepared]:
        model = self._models.get(ref.name) or self._model(ref.name)
        if ref.version is None and ref.label is None:
            version = model.current
            if version is None or version.prepared is None:
                raise RequestError(StatusCode.UNAVAILABLE, self._why_not(model))
            return version, version.prepared
        number = ref.version if ref.version is not None else self._labelled(model, str(ref.label))
        version = model.versions.get(number)
        if version is None or version.prepared is None:
            raise self._no_version(model, ref)
        return version, version.prepared

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
            self._say(model, f"model {model.config.name!r} has no version yet", _awaited(base_path))
            return  # storage that is gone for a while takes nothing away
        model.problem = ""
        async with self._changing:
            if model.paused:
                return
            wanted = model.config.wanted(numbers, model.plan.versions)
            for number in wanted:
                version = model.versions.setdefault(number, _Version())
                if version.prepared is None and version.retry_at <= time.monotonic():
                    await self._load(model, number, version)
            # Where the newest cannot be used from the start, the newest of the others that can.
            for number in reversed([number for number in numbers if number not in wanted]):
                if model.available() or model.config.policy != "latest":
                    break
                version = model.versions.setdefault(number, _Version())
                if version.retry_at <= time.monotonic():
                    await self._load(model, number, version)
            serving = set(model.available())
            if serving & set(wanted):
                for number in sorted(serving - set(wanted)):
                    await self._let_go(model, number)
            for number in [number for number, version in model.versions.items() if number not in numbers]:
                if model.versions[number].prepared is None:
                    del model.versions[number]

    def _say(self, model: _ServedModel, problem: str, logged: str | None = None) -> None:
        """Keep why versions cannot be listed, for whoever asks, and log it once, perhaps in other words."""
        if problem != model.problem:
            _LOG.warning("model %s: %s", model.config.name, logged or problem)
        model.problem = problem

    async def _load(self, model: _ServedModel, number: int, version: _Version) -> None:
        config = model.config
        version.state, version.code, version.message = VersionState.LOADING, StatusCode.OK, ""
        loop = asyncio.get_running_loop()
        loader = self._loader if model.current is None else self._replacer
        start = time.monotonic()
        warmed_up = WarmUpResult()
        try:
            prepared = await loop.run_in_executor(
                loader, prepare, config.name, config.base_path, number, config.require_signed
            )
            # One that replaces another that is awake is asked at once; any other may sleep until it is.
            awake = model.current is not None and model.current.loaded is not None
            if awake or self._free(prepared.size):
                version.loaded = loaded = await self._read(prepared, config, loader)
                warmed_up = await loop.run_in_executor(
                    loader,
                    warm_up_version,
                    loaded.predictors,
                    prepared.described,
                    config.base_path,
                    lambda: self._ending,
                )
            else:
                await loop.run_in_executor(loader, check_files, prepared)
        except Exception as error:  # bytes of others are read: whatever they cause, what serves goes on
            version.fail(error)
            _LOG.error("model %s version %d: %s", config.name, number, version.message)
            return
        version.prepared, version.state, version.failures = prepared, VersionState.AVAILABLE, 0
        version.message = printable(warmed_up.problem)  # which is no reason to refuse it
        version.used = time.monotonic()
        self._switch(model)
        if self.request_log is not None:
            self.request_log.check(prepared.described)
        how = "serves" if version.loaded is not None else "is asleep until it is asked"
        if warmed_up.rows:
            how += f", tried with {warmed_up.rows} rows in {warmed_up.seconds:.2f} s,"
        if version.message:
            _LOG.warning("model %s version %d: %s", config.name, number, version.message)
        _LOG.info("model %s version %d %s after %.2f s", config.name, number, how, time.monotonic() - start)

    async def _read(self, prepared: Prepared, config: ModelConfig, loader: Executor) -> LoadedVersion:
        """Bring a version into memory, where others make room for it."""
        async with self._reading:
            loop = asyncio.get_running_loop()
            bundle = await loop.run_in_executor(loader, read_bundle, prepared)
            self._put_to_sleep(prepared.size)  # for one that is whole
            seconds = await loop.run_in_executor(loader, compile_bundle, bundle)
        gc.freeze()  # what was loaded stays: looking through it again and again holds up requests by milliseconds
        return LoadedVersion(prepared.described, bundle, seconds, config.batching, self._workers)

    async def _let_go(self, model: _ServedModel, number: int) -> None:
        version = model.versions[number]
        version.prepared, version.state = None, VersionState.UNLOADING
        self._switch(model)
        while not version.idle:
            await asyncio.sleep(0.005)
        version.loaded, version.state = None, VersionState.END
        _LOG.info("model %s version %d is unloaded", model.config.name, number)

    def _switch(self, model: _ServedModel) -> None:
        usable = model.usable()
        number = model.plan.newest(usable) if model.config.rollout is not None else max(usable, default=None)
        model.current = None if number is None else model.versions[number]

    # --- versions that sleep ---

    def _in_memory(self) -> list[_Version]:
        versions = {id(each): each for model in self._models.values() for each in model.versions.values()}
        versions |= {id(model.current): model.current for model in self._models.values() if model.current is not None}
        return [each for each in versions.values() if each.loaded is not None]

    def _free(self, size: int) -> bool:
        """Whether a version can be brought into memory without another one's leaving it."""
        return self._most_bytes is None or size + sum(each.size for each in self._in_memory()) <= self._most_bytes

    def _put_to_sleep(self, size: int) -> None:
        """Let go of those that were not asked for longest, as far as a version of some bytes needs their room."""
        versions = sorted(self._in_memory(), key=lambda version: version.used)
        while versions and not self._free(size):
            versions.pop(0).loaded = None  # what runs there is still answered

    def _wake(self, version: _Version, prepared: Prepared, request: InferenceRequest, done: Done) -> None:
        """Bring a version back into memory for a request, and all that come meanwhile."""
        model = self._models[prepared.described.name]
        if version.waiting_rows >= model.config.batching.max_enqueued_rows:
            raise RequestError(StatusCode.RESOURCE_EXHAUSTED, "too many rows wait for this model to be loaded")
        version.waiting.append((request, on_time(done, request.deadline)))
        version.waiting_rows += request.rows
        if len(version.waiting) == 1:
            task = asyncio.get_running_loop().create_task(self._wake_up(model, version, prepared))
            self._waking.add(task)  # a loop alone does not keep its tasks
            task.add_done_callback(self._waking.discard)

    async def _wake_up(self, model: _ServedModel, version: _Version, prepared: Prepared) -> None:
        loaded: LoadedVersion | RequestError = RequestError(StatusCode.UNAVAILABLE, "the server is ending")
        try:
            version.loaded = loaded = await self._read(prepared, model.config, self._loader)
        except Exception as error:
            version.fail(error)
            self._switch(model)
            _LOG.error("model %s version %d: %s", model.config.name, prepared.described.version, version.message)
            loaded = RequestError(StatusCode.UNAVAILABLE, f"the model cannot be loaded: {version.message}")
        finally:
            waiting, version.waiting, version.waiting_rows = version.waiting, [], 0
            for request, done in waiting:
                _pass_on(loaded, request, done)


async def _answer(submit: Callable[[Done], None]) -> InferenceAnswer:
    """What a request that is submitted with a callback is answered."""
    future: asyncio.Future[InferenceAnswer] = asyncio.get_running_loop().create_future()

    def done(result: InferenceAnswer | RequestError) -> None:
        if future.done():  # cancelled: the client has gone
            return
        if isinstance(result, RequestError):
            future.set_exception(result)
        else:
            future.set_result(result)

    submit(done)
    return await future


def _awaited(base_path: str) -> str:
    """What is waited for where there is no version, with the whole path."""
    folder = local_path(base_path)
    where = base_path if folder is None else os.path.abspath(folder)  # noqa: PTH100 - without its ..
    missing = folder is not None and not folder.is_dir()
    return printable(f"waits for a version at {where}{', which does not exist yet' if missing else ''}")


def _pass_on(loaded: LoadedVersion | RequestError, request: InferenceRequest, done: Done) -> None:
    """Submit what had to wait for its version, or say why it cannot be."""
    if isinstance(loaded, RequestError):
        done(loaded)
        return
    try:
        loaded.batchers[str(request.signature)].submit(request, done)
    except Exception as error:
        done(as_request_error(error))


def _return_large_blocks() -> None:
    """Have freed blocks of 1 MiB or more go back to the system at once, where the C library is glibc.

    By itself it keeps such blocks for later, and the weights of models that sleep would go on to take memory.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 20)


def _give_way() -> None:
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)  # of this thread alone, on Linux


def _line(error: BaseException) -> str:
    """An error in one line."""
    text = error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:1000]
