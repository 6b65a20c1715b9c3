"""The components of the small pipelines: numbers, text, gates, and ways to fail."""

from __future__ import annotations

from typing import NamedTuple

import drivetrain as dt
from drivetrain.metadata import Evaluation, Model
from drivetrain.pipelines import Files, Fn, current, load, resolve_files


class Numbers(dt.Artifact):
    total: int = 0
    parts: list[int] = []  # noqa: RUF012  # a declaration: every artifact gets its own copy
    good: bool = True


class Verdict(dt.Artifact):
    passed: bool = True
    summary: str = ""


class Both(NamedTuple):
    numbers: Numbers
    size: int


def made(total: int, parts: list[int] | None = None) -> Numbers:
    numbers = Numbers.new(total=total, parts=parts or [], good=total % 2 == 0)
    (numbers.content / "total.txt").write_text(f"{total} {parts or []}")
    return numbers


@dt.component
def Make(*, count: int = 3) -> Numbers:
    return made(count, list(range(count)))


@dt.component
def Double(numbers: Numbers) -> Numbers:
    return made(numbers.total * 2, [2 * part for part in numbers.parts])


@dt.component
def Add(left: Numbers, right: Numbers | None = None) -> Numbers:
    return made(left.total + (right.total if right else 0))


@dt.component
def Sum(numbers: list[Numbers]) -> Numbers:
    return made(sum(one.total for one in numbers), [one.total for one in numbers])


@dt.component
def Count(numbers: Numbers) -> int:
    return numbers.total


@dt.component
def Names(*, many: int) -> list[str]:
    return [f"n{i}" for i in range(many)]


@dt.component
def Numbered(*, many: int) -> list[int]:
    return list(range(many))


@dt.component
def Pair(*, count: int) -> Both:
    return Both(made(count), count * 10)


@dt.component
def Total(*, values: list[int]) -> int:
    return sum(values)


@dt.component
def Note(*, text: str, more: list[str] | None = None, number: int | None = None) -> str:
    return f"{text} {more} {number}"


@dt.component
def Fails(numbers: Numbers | None = None, *, when: bool = True) -> Numbers:
    if when:
        raise ValueError("told to fail")
    return made(numbers.total if numbers else 1)


@dt.component
def Unmended(numbers: Numbers | None = None) -> Numbers:
    """Fails until there is a file `mended` beside the root."""
    if not (current().base / "mended").exists():
        raise ValueError("not mended")
    return made(numbers.total if numbers else 1, [7, 8])


@dt.component(gates="numbers")
def Check(numbers: Numbers, *, limit: int = 100) -> Verdict:
    verdict = Verdict.new(passed=numbers.total <= limit, summary=f"{numbers.total} > {limit}")
    (verdict.content / "verdict.txt").write_text(str(verdict.passed))
    return verdict


@dt.component
def Write(*, text: str) -> str:
    """Puts its text at the end of a file that other nodes write too: the order they ran in."""
    with (current().base / "order.txt").open("a") as file:
        file.write(text)
    return text


@dt.component
def Read(*, after: list[str] | None = None) -> str:
    return (current().base / "order.txt").read_text()


@dt.component
def Flaky(*, good_at: int, name: str = "tries") -> int:
    """Fails until it is tried for the `good_at`th time."""
    path = current().base / name
    done = len(path.read_text()) + 1 if path.exists() else 1
    path.write_text("x" * done)
    if done < good_at:
        raise ConnectionError(f"try {done}")
    return done


def transient(error: BaseException) -> bool:
    return "try" in str(error)


@dt.component
def Login(*, token: dt.Secret) -> int:
    if token.reveal().startswith("wrong"):
        raise ValueError(f"refused: {token.reveal()}")
    return len(token.reveal())


@dt.component
def Variable() -> str:
    """What its process has in its environment."""
    import os

    return f"{os.environ.get('CONFORMANCE_TOTAL')} {len(os.environ.get('CONFORMANCE_SECRET', ''))}"


@dt.component
def Lines(*, data: Files) -> int:
    return sum(len(file.path.read_text().splitlines()) for file in resolve_files(data).files)


@dt.component
def Apply(numbers: Numbers, *, fn: Fn) -> Numbers:
    return made(load(fn)(numbers.total))


def square(number: int) -> int:
    return number * number


def negate(number: int) -> int:
    return -number


@dt.component
def Compare(numbers: Numbers, earlier: Numbers | None = None) -> str:
    return f"{earlier.total if earlier else None} -> {numbers.total}"


@dt.component
def Learn(*, skill: int) -> Model:
    model = Model.new()
    (model.content / "skill.txt").write_text(str(skill))
    return model


@dt.component
def Judge(model: Model, baseline: Model | None = None) -> Evaluation:
    skill = int((model.content / "skill.txt").read_text())
    before = int((baseline.content / "skill.txt").read_text()) if baseline else 0
    evaluation = Evaluation.new(blessed=skill > before)
    (evaluation.content / "skills.txt").write_text(f"{before} -> {skill}")
    return evaluation
