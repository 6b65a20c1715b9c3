"""What is decided while it runs: `when`, `otherwise`, `one_of`, and what is skipped with what."""

from __future__ import annotations

import drivetrain as dt

from .parts import Add, Check, Count, Double, Fails, Make, Names, Note, Sum


@dt.pipeline
def over_a_parameter(big: bool = True) -> None:
    with dt.when(big):
        Make.options(id="Big")(count=100)
    with dt.otherwise():
        Make.options(id="Small")(count=1)


@dt.pipeline
def over_a_scalar(count: int = 3) -> None:
    n = Count(Make(count=count))
    with dt.when(n > 2):
        Make.options(id="Many")(count=n)
    with dt.otherwise(n == 2):
        Make.options(id="Two")(count=20)
    with dt.otherwise():
        Make.options(id="Few")(count=1)


@dt.pipeline
def over_a_property(count: int = 3) -> None:
    made = Make(count=count)
    with dt.when(made.good):
        Double(made)
    with dt.otherwise():
        Note(text="odd")


@dt.pipeline
def over_an_expression(count: int = 3, strict: bool = False) -> None:
    made = Make(count=count)
    n = Count(made)
    with dt.when(((n > 1) & (n < 9)) | made.good):
        Double(made)
    with dt.when(dt.not_(strict) & (n != 5)):
        Note(text="lax")
    with dt.when(made.parts[1] == 1):
        Note.options(id="Second")(text="its second part is 1")


@dt.pipeline
def in_each_other(count: int = 3) -> None:
    made = Make(count=count)
    with dt.when(made.total > 1):
        doubled = Double(made)
        with dt.when(doubled.total > 8):
            Note.options(id="Inner")(text="inner")
        with dt.otherwise():
            Note.options(id="Else")(text="else")
        Note.options(id="Outer")(text="outer")
    with dt.otherwise(), dt.when(made.total == 1):
        Note.options(id="One")(text="one")


@dt.pipeline
def joined(count: int = 3) -> None:
    made = Make(count=count)
    with dt.when(made.total > 2):
        many = Make.options(id="Many")(count=10)
    with dt.otherwise():
        few = Make.options(id="Few")(count=20)
    Add(dt.one_of(many, few), dt.optional(many))
    Note(text="total", number=dt.one_of(many.total, few.total))


@dt.pipeline
def one_of_nothing() -> None:
    made = Make()
    with dt.when(made.total > 5):
        a = Double(made)
    with dt.when(made.total > 6):
        b = Double.options(id="B")(made)
    Count(Add(dt.one_of(a, b)))
    Add.options(id="Onward")(made, dt.optional(b))


@dt.pipeline
def skipped_travels() -> None:
    made = Make()
    with dt.when(made.total > 5):
        doubled = Double(made)
    counted = Count(Add(made, doubled))
    with dt.when(counted > 0):
        Note(text="asked a skipped one")
    Sum([made, doubled])


@dt.pipeline
def a_condition_that_fails() -> None:
    with dt.when(Fails().good):
        Note(text="never")
    Names(many=1)


@dt.pipeline
def a_gate_in_a_branch(strict: bool = False) -> None:
    made = Make()
    with dt.when(strict):
        Check(made, limit=1)
    Double(made)
