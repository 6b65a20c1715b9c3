"""Rollouts by a clock of the test's own: steps, stickiness, restarts, reloads, the guard, operators."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from drivetrain.errors import InputError
from drivetrain.serving.api import RequestError, StatusCode
from drivetrain.serving.config import ModelConfig
from drivetrain.serving.latency import FINE_BUCKETS
from drivetrain.serving.rollout import Guard, RampStep, Rollout
from drivetrain.serving.rollout_control import ModelSight, RolloutAction, RolloutControl
from drivetrain.serving.traffic import TrafficSplit
from drivetrain.serving.version_tally import VersionTally, cells_of
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = [f"customer-{number}" for number in range(100_000)]
STEPS = (RampStep(1, 10), RampStep(10, 60), RampStep(50, 60), RampStep(100, 5))


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def tally(
    answered: int = 0, *, failed: int = 0, refused: int = 0, seconds: float = 0.001, scores: object = ()
) -> VersionTally:
    latencies = [0] * (len(FINE_BUCKETS) + 1)
    latencies[int(np.searchsorted(FINE_BUCKETS, seconds))] = answered
    cells = cells_of([np.asarray(scores, np.float32)])
    return VersionTally(answered, failed, refused, latencies, {"score": cells} if cells else {})


def config(
    folder: Path, guard: Guard | None = None, steps: tuple[RampStep, ...] = STEPS, version: int | None = None
) -> ModelConfig:
    return ModelConfig("net", "net", rollout=Rollout(steps, str(folder), version, guard))


def look(
    control: RolloutControl,
    clock: Clock,
    minutes: float,
    versions: tuple[int, ...] = (3, 4),
    tallies: Mapping[int, VersionTally] | None = None,
) -> None:
    """Let time pass, with a look each half a minute; what versions did comes with the first."""
    for index in range(max(round(minutes * 2), 1)):
        clock.now += 30 if minutes else 0
        sight = ModelSight(
            {number: f"digest {number}" for number in versions}, dict(tallies or {}) if not index else {}
        )
        control.look({"net": sight})


def started(
    folder: Path, clock: Clock, guard: Guard | None = None, steps: tuple[RampStep, ...] = STEPS
) -> RolloutControl:
    """Version 3 serves, and 4 has come."""
    control = RolloutControl([config(folder, guard, steps)], clock)
    look(control, clock, 0, (3,))
    assert control.plans()["net"].incumbent == 3
    assert control.plans()["net"].candidate is None
    look(control, clock, 0)
    return control


def share(control: RolloutControl) -> float:
    return control.plans()["net"].share


def kinds(control: RolloutControl) -> list[str]:
    return [event["kind"] for event in control.status("net")["events"]]


def test_the_time_before_it_came_is_not_its_own(tmp_path: Path) -> None:
    clock = Clock()
    control = RolloutControl([config(tmp_path)], clock)
    look(control, clock, 5, (3,))
    look(control, clock, 0.5)
    status = control.status("net")
    assert (status["candidate"], status["seconds_left"]) == (4, 60 * (STEPS[0].minutes or 0))


def test_steps_go_by_the_clock_and_lose_nobody(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    before: set[str] = set()
    for percent, minutes in ((1, 10), (10, 60), (50, 60), (100, 5)):
        assert share(control) == percent
        look(control, clock, minutes - 0.5)
        assert share(control) == percent
        assert control.status("net")["seconds_left"] == 30
        split = TrafficSplit({4: share(control)}, "net")
        callers = {key for key in KEYS if split.version_for(key) == 4}
        assert before <= callers
        assert abs(len(callers) / 1000 - percent) <= 0.3
        before = callers
        look(control, clock, 0.5)
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.candidate, plan.share) == (4, None, 0)
    assert kinds(control) == ["started", "advanced", "advanced", "advanced", "promoted"]
    assert control.status("net")["phase"] == "idle"


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 15)
    assert share(control) == 10
    clock.now += 86_400  # a day in which nobody was there counts as a minute at most
    again = RolloutControl([config(tmp_path)], clock)
    assert again.plans() == control.plans()
    look(again, clock, 54)
    assert share(again) == 10
    look(again, clock, 2)
    assert share(again) == 50


def test_time_without_the_version_does_not_count(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 30, (3,))
    assert share(control) == 1
    assert control.plans()["net"].candidate == 4


def test_other_steps_after_a_reload_move_nobody_back(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 15)
    assert share(control) == 10
    control.configure([config(tmp_path, steps=(RampStep(5, 10), RampStep(20, 10), RampStep(100)))])
    assert share(control) == 20
    look(control, clock, 10.5)
    assert control.plans()["net"].incumbent == 4  # a last step of 100 without minutes takes no time
    control.configure([ModelConfig("net", "net")])
    assert not control


def test_other_steps_after_a_restart_move_nobody_back_nor_all_at_once(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 15)
    assert share(control) == 10  # the second of four steps
    for steps, percent in (((RampStep(1, 10), RampStep(5, 10), RampStep(20, 10), RampStep(100)), 20), (STEPS, 50)):
        control = RolloutControl([config(tmp_path, steps=steps)], clock)
        assert share(control) == percent
        look(control, clock, 0)  # and is written down
    control = RolloutControl([config(tmp_path, steps=(RampStep(60, 10), RampStep(100)))], clock)
    assert share(control) == 60


def test_a_version_that_comes_meanwhile_takes_the_place(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 15)
    look(control, clock, 0, (3, 4, 5))
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.candidate, plan.share) == (3, 5, 1)
    assert kinds(control)[-2:] == ["replaced", "started"]


def test_a_named_version_takes_over_and_no_other(tmp_path: Path) -> None:
    clock = Clock()
    control = RolloutControl([config(tmp_path, version=2)], clock)
    look(control, clock, 0, (2, 3))
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.candidate) == (3, 2)
    look(control, clock, 0, (2, 3, 4))
    assert control.plans()["net"].candidate == 2


def test_a_last_step_below_the_whole_stays_until_it_is_advanced(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, steps=(RampStep(10),))
    written = tmp_path / "net.json"
    before = written.stat().st_mtime_ns
    look(control, clock, 10_000)
    assert share(control) == 10
    assert written.stat().st_mtime_ns == before  # of a step without an end no time is kept
    control.act("net", "advance")
    assert control.plans()["net"].incumbent == 4


@pytest.mark.parametrize(
    ("new", "old", "limit", "words"),
    [
        (tally(90, failed=10), tally(1000), "error_rate", "10.00% of its requests failed, 0.00% of the old version's"),
        (tally(90, failed=10), tally(), "error_rate", "10.00% of its requests failed in 100 requests"),
        (tally(90, refused=10), tally(1000), "refused_rate", "10.00% of its requests were refused"),
        (tally(200, seconds=0.05), tally(200, seconds=0.001), "p99_ratio", "3 times as long may"),
    ],
)
def test_a_breach_gives_all_traffic_back_for_good(
    tmp_path: Path, new: VersionTally, old: VersionTally, limit: str, words: str
) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard())
    look(control, clock, 0.5, tallies={4: new, 3: old})
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.candidate, plan.share, plan.failed) == (3, None, 0, ((4, "digest 4"),))
    failure = control.status("net")["failed"][0]
    assert failure["limit"] == limit
    assert words in failure["reason"]
    assert control.statuses()[0]["rollbacks"] == [[4, limit, 1]]
    look(control, clock, 20)
    again = RolloutControl([config(tmp_path, Guard())], clock)
    look(again, clock, 20)
    assert again.plans()["net"] == plan
    # Another bundle under the same number is another try; and so is what an operator allows.
    again.look({"net": ModelSight({3: "digest 3", 4: "another"})})
    assert again.plans()["net"].candidate == 4
    control.act("net", "retry", 4)
    look(control, clock, 0)
    assert (control.plans()["net"].candidate, share(control)) == (4, 1)


def test_a_few_milliseconds_are_no_breach_however_few_they_were_before(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard())
    look(control, clock, 0.5, tallies={4: tally(200, seconds=0.008), 3: tally(200, seconds=0.001)})
    assert control.plans()["net"].candidate == 4


def test_two_servers_of_one_state_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    first, second = (RolloutControl([config(tmp_path)], clock) for _ in range(2))
    for minutes in (0, 1):  # alone it says nothing
        look(first, clock, minutes, versions=(3,))
    assert "somebody else" not in caplog.text
    for minutes in (1, 1):
        look(second, clock, minutes)
        look(first, clock, minutes)
    assert caplog.text.count("net.json was written by somebody else, too: every server needs") == 2  # once by each


def test_a_full_disk_is_told_once_and_what_happened_is_written_when_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    control = started(tmp_path, clock)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for times in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr("drivetrain.serving.rollout_control.write_durably", full)
            control.act("net", "hold" if times == 1 else "abort")
            look(control, clock, 20)
        assert caplog.text.count("of model net cannot be written: No space left on device") == times
        look(control, clock, 1)
    assert json.loads((tmp_path / "net.json").read_bytes())["failed"][0]["version"] == 4


def test_what_both_versions_do_is_no_breach(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard())
    scores = np.random.default_rng(0).beta(2, 5, 4000)
    both = {
        4: tally(900, failed=50, refused=50, seconds=0.002, scores=scores[:2000]),
        3: tally(9000, failed=500, refused=500, seconds=0.001, scores=scores[2000:]),
    }
    look(control, clock, 1, tallies=both)
    assert control.plans()["net"].candidate == 4
    figures = control.status("net")["figures"]
    assert figures["candidate"]["error_rate"] == 0.05
    assert 0 < figures["drift"]["score"] < 0.05


def test_predictions_that_drift_are_a_breach(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard())
    rng = np.random.default_rng(0)
    both = {4: tally(2000, scores=rng.beta(5, 2, 2000)), 3: tally(2000, scores=rng.beta(2, 5, 2000))}
    look(control, clock, 1, tallies=both)
    assert control.status("net")["failed"][0]["limit"] == "drift"


def test_too_few_requests_are_neither_judged_nor_enough_to_go_on(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard())
    look(control, clock, 20, tallies={4: tally(49, failed=50)})
    assert share(control) == 1
    assert control.status("net")["waits_for_requests"]
    look(control, clock, 0.5, tallies={4: tally(100)})
    assert share(control) == 10


def test_what_is_older_than_the_window_is_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock, Guard(window_seconds=60))
    look(control, clock, 2, tallies={4: tally(49, failed=50)})
    look(control, clock, 0.5, tallies={4: tally(49, failed=50)})
    assert control.plans()["net"].candidate == 4
    look(control, clock, 0.5, tallies={4: tally(1)})
    assert control.status("net")["failed"][0]["limit"] == "error_rate"


def test_an_operator_holds_advances_and_gives_up(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    control.act("net", "hold", 4)
    look(control, clock, 100)
    assert (share(control), control.status("net")["phase"]) == (1, "held")
    assert RolloutControl([config(tmp_path)], clock).status("net")["phase"] == "held"
    control.act("net", "resume")
    look(control, clock, 10)
    assert share(control) == 10
    control.act("net", "advance")
    assert share(control) == 50
    control.act("net", "abort")
    assert control.plans()["net"].failed == ((4, "digest 4"),)
    assert kinds(control) == ["started", "held", "resumed", "advanced", "advanced", "aborted"]


def test_an_operator_goes_back_after_a_version_has_taken_over(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 136)
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.previous, plan.candidate) == (4, 3, None)
    assert plan.versions == {3, 4}  # the one before stays loaded
    control = RolloutControl([config(tmp_path)], clock)  # which a restart knows
    look(control, clock, 0, (4,))
    with pytest.raises(RequestError, match="version 3 of model 'net' cannot be asked"):
        control.act("net", "rollback")
    look(control, clock, 0)
    with pytest.raises(RequestError, match="version 4 of model 'net' serves, not 3"):
        control.act("net", "rollback", 3)
    control.act("net", "rollback", 4)
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.previous, plan.failed) == (3, None, ((4, "digest 4"),))
    assert kinds(control)[-2:] == ["promoted", "rolled_back"]
    assert control.statuses()[0]["rollbacks"] == [[4, "rollback", 1]]
    assert control.status("net")["failed"][0]["limit"] == "rollback"
    with pytest.raises(RequestError, match="no version of model 'net' served before version 3"):
        control.act("net", "rollback")
    control = RolloutControl([config(tmp_path)], clock)
    look(control, clock, 100)
    assert control.plans()["net"] == plan
    control.act("net", "retry")
    look(control, clock, 0)
    assert (control.plans()["net"].candidate, share(control)) == (4, 1)
    with pytest.raises(RequestError, match="version 4 of model 'net' is taking over") as refused:
        control.act("net", "rollback")
    assert (refused.value.code, refused.value.fix) == (StatusCode.FAILED_PRECONDITION, "abort it first")


def test_three_versions_need_no_more_than_two_in_memory(tmp_path: Path) -> None:
    clock = Clock()
    control = started(tmp_path, clock)
    look(control, clock, 136)
    look(control, clock, 0, (3, 4, 5))
    assert control.plans()["net"].versions == {4, 5}
    control.act("net", "abort")
    assert control.plans()["net"].versions == {3, 4}


@pytest.mark.parametrize(
    ("action", "version", "code", "words"),
    [
        ("abort", 5, StatusCode.FAILED_PRECONDITION, "version 4, not 5"),
        ("retry", None, StatusCode.FAILED_PRECONDITION, "no version"),
        ("retry", 4, StatusCode.FAILED_PRECONDITION, "version 4"),
        ("stop", None, StatusCode.INVALID_ARGUMENT, "'stop'"),
    ],
)
def test_what_an_operator_cannot_do(
    tmp_path: Path, action: str, version: int | None, code: StatusCode, words: str
) -> None:
    control = started(tmp_path, Clock())
    with pytest.raises(RequestError, match=words) as refused:
        control.act("net", action, version)
    assert refused.value.code is code
    with pytest.raises(RequestError, match="no rollout") as refused:
        control.act("other", "hold")
    assert refused.value.code is StatusCode.NOT_FOUND


def test_a_state_that_is_damaged_or_cannot_be_kept_is_named(tmp_path: Path) -> None:
    clock = Clock()
    started(tmp_path, clock)
    (tmp_path / "net.json").write_text('{"failed": 3}')
    with pytest.raises(InputError, match=r"net\.json does not hold the state of a rollout"):
        RolloutControl([config(tmp_path)], clock)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be kept in"):
        RolloutControl([config(tmp_path / "file")], clock)


@pytest.mark.parametrize(
    "data",
    [
        b'{"incumbent": 3, "candidate": 4, "step": -1}',  # from the end: the last step, with all requests
        b'{"incumbent": 3, "candidate": 4, "step": -9}',
        b'{"incumbent": 3, "candidate": 4, "elapsed": -1e9}',
        b'{"incumbent": 3, "candidate": 4, "elapsed": 1e308}',
        b'{"incumbent": 3, "candidate": 4, "elapsed": NaN}',
        b'{"incumbent": 3, "candidate": 4, "share": 1e308}',  # the last step, with all requests
        b'{"incumbent": 3, "candidate": 4, "share": -1}',
        b'{"incumbent": 3, "candidate": 1e3}',
        b'{"incumbent": 36893488147419103232}',  # no JSON for a worker
        b'{"digest": "\xff"}',
        b'{"more": ' + b"[" * 100_000,
        b"null",
    ],
    ids=[
        "step-1",
        "step-9",
        "elapsed",
        "ages",
        "nan",
        "share-1e308",
        "share-1",
        "float",
        "large",
        "no-text",
        "deep",
        "null",
    ],
)
def test_a_state_that_nobody_wrote_sends_no_requests_anywhere(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "net.json").write_bytes(data)
    with pytest.raises(InputError, match=r"net\.json does not hold the state of a rollout"):
        RolloutControl([config(tmp_path)], Clock())


@pytest.mark.parametrize("incumbent", ["3", "null"])
def test_a_version_does_not_take_over_from_itself(tmp_path: Path, incumbent: str) -> None:
    """Its failure would otherwise leave all requests to it."""
    state = f'{{"incumbent": {incumbent}, "previous": 3, "candidate": 3, "digest": "digest 3", "share": 10}}'
    (tmp_path / "net.json").write_text(state)
    clock = Clock()
    control = RolloutControl([config(tmp_path, Guard())], clock)
    look(control, clock, 0, (3,), {3: tally(failed=100)})
    plan = control.plans()["net"]
    assert (plan.incumbent, plan.previous, plan.candidate, plan.failed) == (3, None, None, ())


def test_a_bundle_that_failed_and_comes_back_under_its_number_is_not_asked(tmp_path: Path) -> None:
    """Neither while another one under that number takes over, nor when that has taken over."""
    for minutes in (0, 136):
        clock = Clock()
        control = started(tmp_path / str(minutes), clock)
        control.act("net", "abort")
        control.look({"net": ModelSight({3: "digest 3", 4: "better"})})
        assert control.plans()["net"].candidate == 4
        for _ in range(2 * minutes):
            clock.now += 30
            control.look({"net": ModelSight({3: "digest 3", 4: "better"})})
        assert control.plans()["net"].incumbent == (4 if minutes else 3)
        look(control, clock, 0)
        plan = control.plans()["net"]
        assert (plan.incumbent, plan.candidate) == (3, None)


NUMBERS = st.sampled_from([None, 3, 4, 5])
FAILURES = st.builds(
    lambda version, digest: {"version": version, "digest": digest, "time": "t", "limit": "abort", "reason": "r"},
    st.sampled_from([3, 4, 5]),
    st.sampled_from(["digest 3", "digest 4", "digest 5", ""]),
)
FIELDS = {
    **dict.fromkeys(("incumbent", "previous", "candidate"), NUMBERS),
    "digest": st.sampled_from(["digest 3", "digest 4", "digest 5", ""]),
    "step": st.integers(0, 6),
    "share": st.sampled_from([0, 1, 10, 50, 100, 7.5]),
    "elapsed": st.floats(0, 1e10),
    "held": st.booleans(),
    "failed": st.lists(FAILURES, max_size=3),
    "events": st.just([{"time": "", "kind": "started", "version": 4, "message": ""}] * 200),
}
ODD = st.sampled_from([-1, 2**63, 2**70, 1.5, 1e308, -1e308, math.nan, math.inf, True, "4", "\ud800", [], [{}], {}])


@st.composite
def states(draw: st.DrawFn) -> tuple[dict[str, Any], bool]:
    """Fields that each could be so, and how they could not together; and whether one is none at all."""
    state: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=FIELDS))
    is_odd = draw(st.booleans())
    if is_odd:
        state[draw(st.sampled_from([*FIELDS]))] = draw(ODD)
    return state, is_odd


LOOKS = st.tuples(st.lists(st.sampled_from([3, 4, 5]), unique=True), st.sampled_from([0, 3, 4, 5]))


@given(written=states(), happens=st.lists(LOOKS | st.sampled_from(get_args(RolloutAction)), max_size=8))
@settings(max_examples=150, deadline=None)
def test_no_state_raises_later_nor_sends_requests_to_what_failed(
    written: tuple[dict[str, Any], bool], happens: list[Any]
) -> None:
    """Whatever a file says, whatever comes then: steps of looks with the versions that are there, and of operators."""
    with tempfile.TemporaryDirectory() as folder:
        state, is_odd = written
        (Path(folder) / "net.json").write_text(json.dumps(state))
        clock = Clock()
        try:
            control = RolloutControl([config(Path(folder), Guard())], clock)
        except InputError:
            if is_odd:
                return
            raise
        for event in happens:
            if isinstance(event, str):
                with contextlib.suppress(RequestError):
                    control.act("net", event)
                continue
            versions, failing = event
            look(control, clock, 0.5, tuple(versions), {failing: tally(failed=100)} if failing else None)
            plan = control.plans()["net"]
            usable = [each for each in sorted(versions) if (each, f"digest {each}") not in plan.failed]
            asked = {plan.newest(usable or sorted(versions))} - {None}
            asked |= {plan.candidate} & {*versions} if plan.share else set()
            assert asked <= {*usable} or not usable
            assert plan.candidate is None or plan.candidate != plan.incumbent
            assert plan.share in {0, *(step.share for step in STEPS)}
            msgspec.json.encode(control.statuses())
        again = RolloutControl([config(Path(folder), Guard())], clock)
        assert again.plans() == control.plans()


def test_the_file_holds_the_state_and_passes_through_no_half(tmp_path: Path) -> None:
    clock = Clock()
    started(tmp_path, clock)
    state = json.loads((tmp_path / "net.json").read_text())
    assert (state["incumbent"], state["candidate"], state["step"]) == (3, 4, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((), "0 steps"),
        ((RampStep(10, 1), RampStep(5)), "do not grow"),
        ((RampStep(10, 1),), "no step comes after"),
    ],
)
def test_steps_that_cannot_be(tmp_path: Path, steps: tuple[RampStep, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Rollout(steps, str(tmp_path))
