"""Rollouts as they go on: steps by the clock, a guard that rolls back, an operator who holds, and a file that knows it.

One process decides for all workers: from what each saw of a model it makes a `RoutePlan`, which all of them keep.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec

from ..digest import write_durably
from ..errors import InputError, suggest
from .api import RequestError, StatusCode
from .config import ModelConfig
from .guard import GuardFigures, breach_of, figures_of
from .log_files import path_part
from .rollout import Rollout, RoutePlan
from .version_tally import SlidingWindow, VersionTally

LOOK_SECONDS: Final = 2.0
"""How often rollouts are looked at."""

RolloutAction: TypeAlias = Literal["hold", "resume", "advance", "abort", "rollback", "retry"]
"""What an operator can do: stop the clock, start it, take the next step, give up, go back from a version that has taken
over to the one before, let a failed version try again."""
EventKind: TypeAlias = Literal[
    "started", "advanced", "promoted", "rolled_back", "aborted", "held", "resumed", "replaced", "retried"
]

_LOG: Final = logging.getLogger("drivetrain.serving")
_LONGEST_GAP: Final = 60.0  # seconds between two looks that count for a step: more, and nobody was there
_SAVE_SECONDS: Final = 30.0
_EVENTS: Final = 100
_NO_GUARD_WINDOW: Final = 300.0

# What a file may hold; anything else is damage.
_VersionNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Percent: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=100)]
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e10)]


@dataclass(frozen=True)
class FailedVersion:
    """A version that does not get requests any more, while there are others.

    Attributes:
        version: Its number.
        digest: Of its bundle: another one under the same number may try.
        time: When, in UTC.
        limit: Of the guard, the limit that it did not keep; "abort" where an operator gave it up, "rollback" where one
            went back from it.
        reason: A sentence with the figures.
    """

    version: _VersionNumber
    digest: str
    time: str
    limit: str
    reason: str


@dataclass(frozen=True)
class RolloutEvent:
    """What came of a rollout.

    Attributes:
        time: When, in UTC.
        kind: What.
        version: The version that takes over.
        message: In words.
    """

    time: str
    kind: EventKind
    version: _VersionNumber
    message: str


@dataclass
class RolloutState:
    """How far a model's rollout is: what its file holds.

    Attributes:
        incumbent: The version that serves; None: nobody has looked yet.
        previous: The version that served before; None: none that anybody would go back to.
        candidate: The version that takes over; None: there is none.
        digest: Of its bundle.
        step: The step that it is at, from 0.
        share: The step's share, as it was written down: the file of the server may have other steps by now.
        elapsed: Seconds that it has been at it.
        held: Whether an operator stopped the clock.
        failed: Versions that failed, the last one last.
        events: What happened, the last one last.
    """

    incumbent: _VersionNumber | None = None
    previous: _VersionNumber | None = None
    candidate: _VersionNumber | None = None
    digest: str = ""
    step: Annotated[int, msgspec.Meta(ge=0)] = 0
    share: _Percent = 0.0
    elapsed: _Seconds = 0.0
    held: bool = False
    failed: list[FailedVersion] = field(default_factory=list)
    events: list[RolloutEvent] = field(default_factory=list)


@dataclass
class ModelSight:
    """What a process sees of a model.

    Attributes:
        available: The versions that can be asked, with the digests of their bundles.
        tallies: What each did since the last look.
    """

    available: dict[int, str] = field(default_factory=dict)
    tallies: dict[int, VersionTally] = field(default_factory=dict)

    def add(self, other: ModelSight) -> None:
        """Add what another process sees."""
        self.available |= other.available
        for version, tally in other.tallies.items():
            self.tallies.setdefault(version, VersionTally()).add(tally)


class ModelRollout:
    """The rollout of one model.

    Args:
        name: The model's.
        options: By which steps.
        state: How far it is.
    """

    def __init__(self, name: str, options: Rollout, state: RolloutState) -> None:
        self.name = name
        self.options = options
        self.state = state
        self.figures = GuardFigures()
        self.rollbacks: dict[tuple[int, str], int] = {}  # by version and limit, since the process started
        self._window = SlidingWindow(self._window_seconds)
        self._looked: float | None = None
        self._available: Mapping[int, str] = {}
        if state.step >= len(options.steps) or self.share != state.share:
            self._go_on_at(state.share)
        self._drop_impossible({})

    @property
    def _window_seconds(self) -> float:
        return self.options.guard.window_seconds if self.options.guard is not None else _NO_GUARD_WINDOW

    @property
    def share(self) -> float:
        """Percent of the requests that go to the candidate."""
        return 0.0 if self.state.candidate is None else self.options.steps[self.state.step].share

    @property
    def plan(self) -> RoutePlan:
        """Which versions requests go to, and in which share."""
        failed = tuple((each.version, each.digest) for each in self.state.failed)
        return RoutePlan(self.state.incumbent, self.state.candidate, self.share, failed, self.state.previous)

    def configure(self, options: Rollout) -> None:
        """Go on by other steps, at the first one whose share is no smaller than now: nobody changes sides."""
        share, has_other_steps = self.share, options.steps != self.options.steps
        self.options = options
        if has_other_steps and self.state.candidate is not None:
            self._go_on_at(share)
        if self._window.seconds != self._window_seconds:
            self._window = SlidingWindow(self._window_seconds)

    def _go_on_at(self, share: float) -> None:
        steps = self.options.steps
        self.state.step = next((at for at, step in enumerate(steps) if step.share >= share), len(steps) - 1)
        self.state.elapsed = 0.0

    def look(self, sight: ModelSight, now: float) -> None:
        """Take in what all processes see; `now` in seconds since 1970."""
        state = self.state
        passed = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), _LONGEST_GAP)
        self._looked = now
        self._window.add(now, sight.tallies)
        self._available = sight.available
        if not sight.available:
            return
        self._settle_incumbent(sight.available)
        self._drop_impossible(sight.available)
        before = (state.candidate, state.digest)
        self._choose_candidate(sight.available, now)
        if before != (state.candidate, state.digest):
            passed = 0.0  # it had not come by then
        if state.candidate is None or state.candidate not in sight.available:
            return
        guard = self.options.guard
        if guard is not None:
            self.figures = figures_of(guard, self._window.of(state.candidate), self._window.of(state.incumbent))
            breach = breach_of(guard, self.figures) if self.share else None
            if breach is not None:
                self._give_up(now, "rolled_back", breach.limit, breach.reason)
                return
        if state.held:
            return
        minutes = self.options.steps[state.step].minutes
        if minutes is None:
            if self.share >= 100:  # a last step of no time
                self._advance(now)
            return
        state.elapsed += passed
        if state.elapsed >= 60 * minutes and not self.waits_for_requests:
            self._advance(now)

    @property
    def waits_for_requests(self) -> bool:
        """Whether the guard has seen too few requests to let the candidate go on."""
        guard = self.options.guard
        return guard is not None and self.share > 0 and self.figures.candidate.requests < guard.min_requests

    def act(self, action: RolloutAction, version: int | None, now: float) -> None:
        """Do what an operator wants.

        Raises:
            RequestError: FAILED_PRECONDITION: no version takes over, none of that number has failed, or none served
                before.
        """
        state = self.state
        if action == "retry":
            again = [each for each in state.failed if version in (None, each.version)]
            if not again:
                raise RequestError(
                    StatusCode.FAILED_PRECONDITION,
                    f"no version of model {self.name!r} has failed" if version is None
                    else f"version {version} of model {self.name!r} has not failed",
                )  # fmt: skip
            state.failed = [each for each in state.failed if each not in again]
            for each in again:
                self._happened(now, "retried", each.version, "may take over again")
            return
        if action == "rollback":
            self._go_back(version, now)
            return
        if state.candidate is None or version not in (None, state.candidate):
            which = "no version" if state.candidate is None else f"version {state.candidate}, not {version},"
            raise RequestError(StatusCode.FAILED_PRECONDITION, f"{which} of model {self.name!r} is taking over")
        if action == "abort":
            self._give_up(now, "aborted", "abort", "an operator gave it up")
        elif action == "advance":
            self._advance(now)
        else:
            state.held = action == "hold"
            self._happened(now, "held" if state.held else "resumed", state.candidate, f"at {self.share:g} %")

    def status(self) -> dict[str, Any]:  # Any: JSON
        """What the admin API tells."""
        state, steps, guard = self.state, self.options.steps, self.options.guard
        minutes = steps[state.step].minutes
        left = None if state.candidate is None or minutes is None else max(60 * minutes - state.elapsed, 0.0)
        phase = "idle" if state.candidate is None else "held" if state.held else "ramping"
        return {
            "model": self.name,
            "phase": phase,
            "incumbent": state.incumbent,
            "previous": state.previous,
            "candidate": state.candidate,
            "share": self.share,
            "step": None if state.candidate is None else state.step,
            "steps": [asdict(step) for step in steps],
            "seconds_left": left,
            "waits_for_requests": state.candidate is not None and self.waits_for_requests,
            "guard": None if guard is None else asdict(guard),
            "figures": None if guard is None else asdict(self.figures),
            "failed": [asdict(each) for each in state.failed],
            "events": [asdict(each) for each in state.events],
        }

    # --- what happens ---

    def _settle_incumbent(self, available: Mapping[int, str]) -> None:
        """The version that serves, where nobody has said so yet: the newest that is not to take over by steps.

        Likewise where the bundle that now lies under its number is one that failed.
        """
        state = self.state
        if state.incumbent is not None and not self._has_failed(state.incumbent, available.get(state.incumbent, "")):
            return
        usable = [number for number in sorted(available) if not self._has_failed(number, available[number])]
        others = [number for number in usable if number not in (self.options.version, state.candidate)]
        if usable or state.incumbent is None:
            state.incumbent = (others or usable or sorted(available))[-1]

    def _drop_impossible(self, available: Mapping[int, str]) -> None:
        """End what no rollout does, but a file may say: a version takes over from itself, or after it has failed."""
        state, candidate = self.state, self.state.candidate
        if state.previous == state.incumbent:
            state.previous = None
        if candidate is None:
            return
        if candidate == state.incumbent or self._has_failed(candidate, available.get(candidate, state.digest)):
            why = "serves already" if candidate == state.incumbent else "has failed"
            _LOG.error("rollout of model %s: version %d %s and does not take over", self.name, candidate, why)
            self._end()

    def _choose_candidate(self, available: Mapping[int, str], now: float) -> None:
        state, named = self.state, self.options.version
        usable = [number for number, digest in available.items() if not self._has_failed(number, digest)]
        if named is not None:
            usable = [number for number in usable if number == named and number != state.incumbent]
        else:
            newest = max(state.incumbent or 0, state.candidate - 1 if state.candidate is not None else 0)
            usable = [number for number in usable if number > newest]
        if not usable:
            if named is not None and state.candidate not in (None, named):
                state.candidate = None  # the configuration names another now
            return
        chosen = max(usable)
        if (chosen, available[chosen]) == (state.candidate, state.digest):
            return
        if state.candidate is not None and chosen != state.candidate:
            self._happened(now, "replaced", state.candidate, f"version {chosen} takes over in its place")
        state.candidate, state.digest, state.step, state.elapsed, state.held = chosen, available[chosen], 0, 0.0, False
        self.figures = GuardFigures()
        self._window.forget(chosen)
        self._happened(now, "started", chosen, f"takes over from version {state.incumbent}, {self.share:g} % first")

    def _has_failed(self, number: int, digest: str) -> bool:
        return any((each.version, each.digest) == (number, digest) for each in self.state.failed)

    def _advance(self, now: float) -> None:
        state = self.state
        assert state.candidate is not None
        if state.step + 1 < len(self.options.steps):
            state.step, state.elapsed = state.step + 1, 0.0
            self._happened(now, "advanced", state.candidate, f"gets {self.share:g} %")
            return
        candidate = state.candidate
        state.previous, state.incumbent = state.incumbent, candidate
        self._end()
        self._happened(now, "promoted", candidate, "has taken over")

    def _give_up(self, now: float, kind: Literal["rolled_back", "aborted"], limit: str, reason: str) -> None:
        """Take all traffic from the candidate."""
        assert self.state.candidate is not None
        version, digest = self.state.candidate, self.state.digest
        self._end()
        self._failed(now, kind, FailedVersion(version, digest, _shown(now), limit, reason))

    def _go_back(self, version: int | None, now: float) -> None:
        """Have the version before serve again, at once."""
        state, available = self.state, self._available
        message, fix = "", None
        if state.candidate is not None:
            message, fix = f"version {state.candidate} of model {self.name!r} is taking over", "abort it first"
        elif version not in (None, state.incumbent):
            message = f"version {state.incumbent} of model {self.name!r} serves, not {version}"
        elif state.previous is None or state.incumbent is None:
            message = f"no version of model {self.name!r} served before version {state.incumbent}"
        elif state.previous not in available or self._has_failed(state.previous, available[state.previous]):
            message, fix = f"version {state.previous} of model {self.name!r} cannot be asked", "see its status"
        if message or state.incumbent is None:
            raise RequestError(StatusCode.FAILED_PRECONDITION, message, fix=fix)
        left, state.incumbent, state.previous = state.incumbent, state.previous, None
        reason = "an operator went back from it"
        failed = FailedVersion(left, available.get(left, ""), _shown(now), "rollback", reason)
        self._failed(now, "rolled_back", failed)

    def _failed(self, now: float, kind: Literal["rolled_back", "aborted"], failed: FailedVersion) -> None:
        state, key = self.state, (failed.version, failed.limit)
        state.failed = [*state.failed, failed]
        self.rollbacks[key] = self.rollbacks.get(key, 0) + 1
        self._happened(now, kind, failed.version, f"version {state.incumbent} has all traffic again: {failed.reason}")

    def _end(self) -> None:
        """No version takes over any more."""
        state = self.state
        state.candidate, state.digest, state.step, state.elapsed, state.held = None, "", 0, 0.0, False

    def _happened(self, now: float, kind: EventKind, version: int, message: str) -> None:
        self.state.events = [*self.state.events[1 - _EVENTS :], RolloutEvent(_shown(now), kind, version, message)]
        level = logging.ERROR if kind == "rolled_back" else logging.INFO
        _LOG.log(level, "rollout of model %s: version %d %s: %s", self.name, version, kind.replace("_", " "), message)


async def look_forever(decide: Callable[[], Awaitable[None]]) -> None:
    """Have rollouts decided on every `LOOK_SECONDS`, whatever goes wrong."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            await decide()
        except Exception:
            _LOG.exception("looking at rollouts failed")


class RolloutControl:
    """The rollouts of a server's models, and the files that know how far they are.

    Args:
        configs: The models.
        clock: Seconds since 1970.

    Raises:
        InputError: A folder of states cannot be written to, or a state is damaged.
    """

    def __init__(self, configs: Sequence[ModelConfig], clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._rollouts: dict[str, ModelRollout] = {}
        self._saved: dict[str, bytes] = {}
        self._saved_at: dict[str, float] = {}
        self._shared: set[Path] = set()  # files that somebody else writes, too
        self._unwritten: set[Path] = set()  # files that could not be written at the last try
        self.configure(configs)

    def __bool__(self) -> bool:
        return bool(self._rollouts)

    def configure(self, configs: Sequence[ModelConfig]) -> None:
        """Go on with these models; those that stay keep their place.

        Raises:
            InputError: As by the class.
        """
        wanted = {config.name: config.rollout for config in configs if config.rollout is not None}
        rollouts = {}
        for name, options in wanted.items():
            known = self._rollouts.get(name)
            if known is None or known.options.state != options.state:
                known = ModelRollout(name, options, self._read(name, options))
            rollouts[name] = known
        self._rollouts = rollouts  # once every state could be read
        for name, options in wanted.items():
            rollouts[name].configure(options)

    def plans(self) -> dict[str, RoutePlan]:
        """Where the requests of each model go."""
        return {name: rollout.plan for name, rollout in self._rollouts.items()}

    def look(self, sights: Mapping[str, ModelSight]) -> bool:
        """Take in what all processes see, and say whether a plan has changed."""
        before = self.plans()
        now = self._clock()
        for name, rollout in self._rollouts.items():
            rollout.look(sights.get(name) or ModelSight(), now)
            self._save(rollout, now)
        return self.plans() != before

    def act(self, name: str, action: str, version: int | None = None) -> None:
        """Do what an operator wants with a model's rollout.

        Raises:
            RequestError: There is no such model with a rollout, no such action, or nothing that it could be done to.
        """
        rollout = self._of(name)
        known: tuple[RolloutAction, ...] = get_args(RolloutAction)
        meant = next((each for each in known if each == action), None)
        if meant is None:
            raise RequestError(
                StatusCode.INVALID_ARGUMENT,
                f"{action!r:.40} is nothing that can be done to a rollout",
                fix=suggest(action, known),
            )
        now = self._clock()
        rollout.act(meant, version, now)
        self._save(rollout, now)

    def status(self, name: str) -> dict[str, Any]:
        """What the admin API tells of a model's rollout.

        Raises:
            RequestError: NOT_FOUND: there is no such model with a rollout.
        """
        return self._of(name).status()

    def statuses(self) -> list[dict[str, Any]]:
        """`status` of each model, with its `rollbacks` since the process started, for the metrics."""
        return [
            {**rollout.status(), "rollbacks": [[*key, count] for key, count in rollout.rollbacks.items()]}
            for rollout in self._rollouts.values()
        ]

    def _of(self, name: str) -> ModelRollout:
        rollout = self._rollouts.get(name)
        if rollout is None:
            raise RequestError(
                StatusCode.NOT_FOUND,
                f"there is no rollout of model {name!r:.100}",
                fix="write a rollout into the file of --config",
            )
        return rollout

    # --- the files ---

    def _read(self, name: str, options: Rollout) -> RolloutState:
        path = _path(name, options)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():  # where it cannot be written, a rollback would be forgotten
                write_durably(path, msgspec.json.encode(RolloutState()))
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"the state of the rollout of {name!r} cannot be kept in {path.parent}: {error.strerror}",
                fix="name a folder that can be written to as `state` of the rollout",
            ) from error
        try:
            state = msgspec.json.decode(data, type=RolloutState)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(
                f"{path} does not hold the state of a rollout: {error}",
                fix="delete it; versions that failed may then take over again",
            ) from error
        self._saved[name] = data
        return state

    def _save(self, rollout: ModelRollout, now: float) -> None:
        """Write a state down, where it has changed; the time that has passed only now and then."""
        name = rollout.name
        before = self._saved.get(name)
        rollout.state.share = rollout.share
        data = msgspec.json.encode(rollout.state)
        if data == before:
            return
        soon = 0 <= now - self._saved_at.get(name, 0.0) < _SAVE_SECONDS
        if soon and before is not None and _without_time(before) == _without_time(data):
            return
        self._saved_at[name] = now
        path = _path(name, rollout.options)
        try:
            if path not in self._shared and path.exists() and path.read_bytes() != before:
                self._shared.add(path)
                _LOG.error(
                    "%s was written by somebody else, too: every server needs a `state` of its own, or it gets the "
                    "versions that another took back after a restart, and forgets those that it took back itself", path,
                )  # fmt: skip
            write_durably(path, data)
        except OSError as error:  # tried again at the next look
            if path not in self._unwritten:
                _LOG.error("the state of the rollout of model %s cannot be written: %s", name, error.strerror)
            self._unwritten.add(path)
            return
        self._unwritten.discard(path)
        self._saved[name] = data


def _path(name: str, options: Rollout) -> Path:
    return Path(options.state) / f"{path_part(name)}.json"


def _without_time(data: bytes) -> dict[str, Any]:
    return {**msgspec.json.decode(data), "elapsed": 0}


def _shown(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
