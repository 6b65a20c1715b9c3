"""What is launched once for each item of a list."""

from __future__ import annotations

from typing import Any

import drivetrain as dt

from .parts import Add, Check, Count, Double, Fails, Make, Names, Note, Numbered, Numbers, Pair, Sum, Total


@dt.pipeline
def over_a_literal() -> None:
    Sum(dt.map_(lambda item: Double(Make(count=item)), over=[1, 2, 3]))


@dt.pipeline
def over_a_parameter(counts: list[int]) -> None:
    Sum(dt.map_(lambda item: Make(count=item), over=counts))


@dt.pipeline
def over_a_returned_list(many: int = 3) -> None:
    notes = dt.map_(lambda name: Note(text=name), over=Names(many=many))
    Note.options(id="All")(text="all", more=notes)


@dt.pipeline
def over_a_property(count: int = 3) -> None:
    made = Make.options(id="Start")(count=count)
    doubled = dt.map_(lambda part: Add(Make(count=part), made), over=made.parts)
    Sum(doubled)
    Total(values=doubled.total)  # type: ignore[attr-defined]  # of every item


@dt.pipeline
def over_parts_of_items() -> None:
    items: list[Any] = [{"n": 4, "names": ["a", "b"]}, {"n": 5, "names": []}]
    dt.map_(lambda item: Note(text="n", number=item["n"], more=item["names"]), over=items)


@dt.pipeline
def in_each_other() -> None:
    def outer(many: int) -> str:
        notes = dt.map_(lambda name: Note(text=name, number=many), over=Names(many=many), id="inner")
        return Note.options(id="Gather")(text="all", more=notes)

    Note.options(id="Last")(text="end", more=dt.map_(outer, over=[0, 1, 2]))


@dt.pipeline
def over_what_a_loop_gave() -> None:
    counts = dt.map_(lambda item: Count(Make(count=item)), over=[1, 2])
    Sum(dt.map_(lambda item: Make.options(id="Again")(count=item), over=counts, id="second"))


@dt.pipeline
def in_a_branch(count: int = 3) -> None:
    made = Make(count=count)
    with dt.when(made.total > 2):
        doubled = dt.map_(lambda item: Double(Make.options(id="Inside")(count=item)), over=made.parts)
    Sum(doubled)
    Note(text="either way")


@dt.pipeline
def a_branch_in_a_loop() -> None:
    def one(item: int) -> Numbers:
        with dt.when(item >= 2):
            made = Make(count=item)
        with dt.otherwise():
            Note(text="small", number=item)
        return made

    Sum(dt.map_(one, over=[1, 2, 3]))


@dt.pipeline
def gathered_in_another_loop() -> None:
    def large(item: int) -> Any:
        with dt.when(item >= 2):
            return Note(text="large", number=item)

    notes = dt.map_(large, over=[1, 2])
    dt.map_(lambda item: Note.options(id="Gather")(text="all", number=item, more=notes), over=[7, 8], id="other")


@dt.pipeline
def a_branch_around_a_loop_in_a_loop() -> None:
    def outer(item: int) -> int:
        with dt.when(item >= 2):
            counts = dt.map_(lambda many: Count(Make(count=many)), over=Numbered(many=item), id="inner")
        return Total(values=counts)

    Total.options(id="All")(values=dt.map_(outer, over=[1, 2]))


@dt.pipeline
def few_at_once() -> None:
    def one(item: int) -> Numbers:
        return Double(Double.options(id="Once")(Make(count=item)))

    Sum(dt.map_(one, over=[1, 2, 3, 4, 5], max_parallel=2))


@dt.pipeline
def few_at_once_in_each_other() -> None:
    def outer(many: int) -> int:
        inner = dt.map_(lambda item: Count(Make(count=item)), over=Numbered(many=many), max_parallel=2, id="inner")
        return Total(values=inner)

    Total.options(id="All")(values=dt.map_(outer, over=[3, 0, 2], max_parallel=1))


@dt.pipeline
def few_of_the_inner_at_once() -> None:
    def outer(many: int) -> int:
        inner = dt.map_(lambda item: Count(Make(count=item)), over=Numbered(many=many), max_parallel=1, id="inner")
        return Total(values=inner)

    Total.options(id="All")(values=dt.map_(outer, over=[3, 0, 2]))


@dt.pipeline
def of_nothing(counts: list[int]) -> None:
    made = dt.map_(lambda item: Double(Make(count=item)), over=counts)
    Sum(made)
    Total(values=made.total)  # type: ignore[attr-defined]  # of every item


@dt.pipeline
def an_item_that_fails() -> None:
    items: list[Any] = [{"n": 1, "bad": False}, {"n": 2, "bad": True}, {"n": 3, "bad": False}]
    fails = dt.map_(lambda item: Double(Fails(Make(count=item["n"]), when=item["bad"])), over=items)
    Sum(fails)
    Note(text="beside")


@dt.pipeline
def gathered() -> None:
    def one(item: int) -> tuple[Numbers, int]:
        both = Pair(count=item)
        return both.numbers, both.size

    numbers, sizes = dt.loops.unzip(dt.map_(one, over=[1, 2, 3]))
    Sum(numbers)
    Total(values=sizes)


@dt.pipeline
def held_back() -> None:
    failed = Fails()
    Sum(dt.map_(lambda item: Double(Make(count=item)), over=failed.parts))


@dt.pipeline
def over_no_list() -> None:
    def outer(item: Any) -> int:
        return Total(values=dt.map_(lambda n: Count(Make(count=n)), over=item["counts"], id="inner"))

    items: list[Any] = [{"counts": [1, 2]}, {"counts": "none"}]
    Total.options(id="All")(values=dt.map_(outer, over=items))


@dt.pipeline
def a_gate_in_a_loop() -> None:
    def one(item: int) -> Numbers:
        made = Make(count=item)
        Check(made, limit=2)
        return Double(made)

    Sum(dt.map_(one, over=[1, 5]))


@dt.pipeline
def part(start: int) -> Numbers:
    return Double(Make(count=start))


@dt.pipeline
def a_pipeline_in_a_loop() -> None:
    Sum(dt.map_(lambda item: part(start=item), over=[1, 2]))
