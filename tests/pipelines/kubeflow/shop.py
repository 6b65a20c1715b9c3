"""A small project: components that count."""

from __future__ import annotations

PARTS = """
    import drivetrain as dt

    class Numbers(dt.Artifact):
        total: int = 0

    def made(total: int) -> Numbers:
        numbers = Numbers.new(total=total)
        (numbers.content / "total.txt").write_text(str(total))
        return numbers

    @dt.component
    def Make(*, count: int = 3) -> Numbers:
        return made(count)

    @dt.component
    def Use(numbers: Numbers, *, amount: int = 1) -> Numbers:
        return made(numbers.total + amount)

    @dt.component
    def Score(numbers: Numbers) -> float:
        return numbers.total / 10

    @dt.component
    def Items(*, count: int) -> list[int]:
        return list(range(count))

    @dt.component
    def Sum(numbers: list[Numbers]) -> Numbers:
        return made(sum(each.total for each in numbers))

    @dt.component
    def Say(*, what: str = "bye") -> Numbers:
        return made(0)
"""

PLAIN = "Use.options(id='Second')(Use.options(id='First')(Make(count=count)), amount=5)"
