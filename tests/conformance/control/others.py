"""Exits, retries, secrets, history, files and functions by name."""

from __future__ import annotations

import drivetrain as dt
from drivetrain.components import Approval

from .parts import (
    Apply,
    Compare,
    Count,
    Double,
    Fails,
    Flaky,
    Judge,
    Learn,
    Lines,
    Login,
    Make,
    Note,
    Numbers,
    Read,
    Sum,
    Unmended,
    Variable,
    Write,
)


@dt.pipeline
def on_exit(bad: bool = False) -> None:
    made = Make()
    Fails(made, when=bad)
    with dt.when(made.total > 5):
        skipped = Double(made)
    with dt.on_exit() as run:
        Note(text=run.state, more=run.failed, number=dt.optional(made.total))
        Note.options(id="Skipped")(text="x", number=dt.optional(skipped.total))
        with dt.when(run.state == "FAILED"):
            Note.options(id="Alarm")(text=run.reason)


@dt.pipeline
def exit_over_failures(most: int = 1) -> None:
    dt.map_(lambda item: Fails(Make(count=item), when=item > most), over=[1, 2, 3])
    with dt.on_exit() as run:
        dt.map_(lambda name: Note(text=name), over=run.failed)


@dt.pipeline
def exit_after_mending() -> None:
    Unmended()
    with dt.on_exit() as run:
        said = Note(text=run.state, more=run.failed)
        with dt.when(run.state == "FAILED"):
            Note.options(id="Alarm")(text=run.reason)
        with dt.otherwise():
            Note.options(id="Fine")(text=said)


@dt.pipeline
def retried() -> None:
    Flaky.options(retries=3, backoff=0.01, retry_on="parts:transient")(good_at=3)


@dt.pipeline
def retried_in_vain() -> None:
    Flaky.options(retries=1, backoff=0.01)(good_at=9)
    Flaky.options(id="Other", retries=3, backoff=0.01, retry_on=TimeoutError)(good_at=2, name="other")


@dt.pipeline
def retried_in_a_loop() -> None:
    dt.map_(lambda name: Flaky.options(retries=2, backoff=0.01)(good_at=2, name=name), over=["a", "b"])


@dt.pipeline
def secret(wanted: bool = True) -> None:
    with dt.when(wanted):  # it might not run, so that its secret is missed when it does
        Login(token=dt.secret("CONFORMANCE_TOKEN"))


@dt.pipeline
def never_cached(count: int = 3) -> None:
    Count(Make.options(cache=False)(count=count))


@dt.pipeline
def newest(count: int = 3) -> None:
    Compare(Make(count=count), dt.latest(Numbers, node="Make"))


@dt.pipeline
def newest_blessed(skill: int = 1) -> None:
    model = Learn(skill=skill)
    evaluation = Judge(model, dt.latest_blessed())
    with dt.when(evaluation.blessed):
        Note(text="pushed")


@dt.pipeline
def files_by_pattern(data: str = "data/*.txt") -> None:
    Lines(data=data)


@dt.pipeline
def functions_by_name() -> None:
    made = Make()
    Apply(made, fn="parts:square")
    Apply.options(id="Negated")(made, fn="parts:negate")


@dt.pipeline
def mended_later() -> None:
    before = Double(Make())
    after = Unmended(before)
    loop = dt.map_(lambda item: Double.options(id="Item")(Make.options(id="Each")(count=item)), over=after.parts)
    Sum.options(id="Sum")([before, after])
    Sum.options(id="Items")(loop)


@dt.pipeline
def by_priority() -> None:
    start = Write.options(id="Start", cache=False)(text="s")
    low = Write.options(id="Low", after=[start], cache=False, priority=-1)(text="l")
    mid = Write.options(id="Mid", after=[start], cache=False)(text="m")
    high = Write.options(id="High", after=[start], cache=False, priority=5)(text="h")
    Read.options(after=[low, mid, high], cache=False)()


@dt.pipeline
def asked() -> None:
    def one(item: int) -> Numbers:
        with dt.when(Approval(message="on with it?", wait=0.05).approved):
            made = Make(count=item)
        return Double(made)

    Sum(dt.map_(one, over=[3, 4]))


@dt.pipeline
def timed() -> None:
    Make.options(timeout=60)()


@dt.pipeline
def environment() -> None:
    made = Make()
    Variable.options(
        cache=False, env={"CONFORMANCE_TOTAL": made.total, "CONFORMANCE_SECRET": dt.secret("CONFORMANCE_TOKEN")}
    )()
    Variable.options(id="Without", cache=False)()
