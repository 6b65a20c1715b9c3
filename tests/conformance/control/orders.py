"""What follows what: chains, diamonds, gates, order without data, lists of inputs, pipelines in pipelines."""

from __future__ import annotations

import drivetrain as dt

from .parts import Add, Check, Count, Double, Fails, Make, Note, Numbers, Pair, Read, Sum, Write


@dt.pipeline
def linear(count: int = 3) -> None:
    Count(Double(Make(count=count)))


@dt.pipeline
def diamond() -> None:
    made = Make()
    Add(Double(made), Add.options(id="Other")(made))


@dt.pipeline
def gate(count: int = 3) -> None:
    made = Make(count=count)
    Check(made, limit=5)
    Count(Double(made))
    Note(text="of nothing")


@dt.pipeline
def order_without_data() -> None:
    first = Write.options(id="First", cache=False)(text="a")
    second = Write.options(id="Second", after=[first], cache=False)(text="b")
    third = Write.options(id="Third", after=[second], cache=False)(text="c")
    Read.options(after=[third], cache=False)()


@dt.pipeline
def order_after_a_failure() -> None:
    failed = Fails()
    Note.options(after=[failed])(text="never")
    Note.options(id="Beside")(text="all the same")


@dt.pipeline
def input_list() -> None:
    Sum([Make.options(id="A")(count=1), Make.options(id="B")(count=2), Make.options(id="C")(count=4)])


@dt.pipeline
def optional_inputs(count: int = 3) -> None:
    made = Make(count=count)
    with dt.when(made.total > 5):
        doubled = Double(made)
    Add(made, dt.optional(doubled))
    Add.options(id="Alone")(made)
    Sum([made, dt.optional(doubled)])  # type: ignore[list-item]  # left out where it was skipped
    Note(text="x", number=dt.optional(doubled.total))


@dt.pipeline
def scalar_outputs() -> None:
    both = Pair(count=4)
    Note(text="size", number=both.size)
    Note.options(id="Total")(text="total", number=both.numbers.total)


@dt.pipeline
def twice(start: Numbers, times: int = 2) -> Numbers:
    first = Add(start, Make(count=times))
    return Add.options(id="Again")(first, start)


@dt.pipeline
def nested() -> None:
    one = twice(Make(count=3))
    two = twice.options(id="second")(one, times=5)
    Sum([one, two])


@dt.pipeline
def part(start: Numbers, large: bool = False) -> Numbers:
    with dt.when(large):
        many = Add(start, Make(count=100))
    with dt.otherwise():
        few = Add.options(id="Few")(start, Make.options(id="One")(count=1))
    return Add.options(id="Joined")(dt.one_of(many, few))


@dt.pipeline
def flagged(large: bool = False) -> None:
    """One flag is known when the pipeline is built, the other when it runs."""
    made = Make()
    Sum([part(made, large=True), part.options(id="second")(made, large=large)])


@dt.pipeline
def failures_stay_apart() -> None:
    failed = Fails()
    Double(failed)
    Count(Double.options(id="Fine")(Make()))
