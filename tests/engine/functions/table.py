"""Functions with every kind of control flow, their inputs, and what their values and gradients are compared with."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drivetrain.engine import do_not_convert, loop_options, set_max_steps
from hypothesis import strategies as st

# Eighths are exact in float32, so that Python in 64 bits and the graph take the same branches.
EIGHTHS = st.integers(-64, 64).map(lambda k: k / 8 + 1 / 16)
POSITIVE = st.integers(1, 200).map(lambda k: k / 8 + 1 / 16)
ROWS = st.lists(EIGHTHS, min_size=5, max_size=5).map(lambda xs: np.array(xs))
MATRIX = st.lists(EIGHTHS, min_size=6, max_size=6).map(lambda xs: np.array(xs).reshape(3, 2))
COUNT = st.integers(0, 9)


@dataclass(frozen=True)
class Case:
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]  # hypothesis strategies
    slopes: tuple[int, ...] = ()  # arguments to differentiate by
    reference: Callable[..., Any] | None = None  # for what numpy cannot run
    by_hand: Callable[..., Any] | None = None  # a lax version, whose jax.grad is the oracle
    static: dict[str, Any] = field(default_factory=dict)


def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        if n % 2 == 0:  # noqa: SIM108  # statements are what is tested
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def gcd(a: Any, b: Any) -> Any:
    while b != 0:
        a, b = b, a % b
    return a


def newton(a: Any) -> Any:
    x = a
    while abs(x * x - a) > 1e-3 * a:
        set_max_steps(40)
        x = (x + a / x) / 2
    return x


def early_return(x: Any) -> Any:
    if x > 5:
        return x * x
    if x < -5:
        return -x
    return 3 * x


def nested_loops(n: Any, m: Any) -> Any:
    total = 0
    for i in range(n):
        for j in range(m):
            if (i + j) % 3 == 0:
                continue
            total += i * j
    return total


def break_and_continue(xs: Any) -> Any:
    total = 0.0
    for x in xs:
        if x < 0:
            continue
        if total > 8:
            break
        total = total + x * x
    return total


def short_circuit(x: Any, y: Any) -> Any:
    score = 0
    if x > 0 and 10 / x > y:
        score += 1
    if x < 0 or y < 0 or x > y:
        score += 10
    if not (x > y or y > 3):
        score += 100
    return score


def ternary(x: Any, y: Any) -> Any:
    return x if x > y else (y * y if y > 2 else -y)


def tuple_state(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a, b


def accumulate(xs: Any) -> Any:
    out = jnp.zeros(5)
    total = 0.0
    for i, x in enumerate(xs):
        total += x if x > 0 else 0.0
        out = out.at[i].set(total)
    return out


def accumulate_numpy(xs: Any) -> Any:
    return np.cumsum(np.maximum(xs, 0))


def over_rows(rows: Any, w: Any) -> Any:
    best = -1e6
    for row in rows:
        score = (row * w).sum()
        if score > best:
            best = score
    return best


def array_condition(xs: Any) -> Any:
    steps = 0
    while (abs(xs) > 1).any():
        loop_options(max_steps=12)
        xs = xs / 2
        steps += 1
    return xs, steps


def power(x: Any, n: Any) -> Any:
    if n == 0:
        return x * 0 + 1
    half = power(x, n // 2)
    return half * half if n % 2 == 0 else half * half * x


def clipped(x: Any, low: Any, high: Any) -> Any:
    if x < low:
        return low * 1.0
    if x > high:
        return high * 1.0
    return x


def callee_with_branches(x: Any) -> Any:
    total = 0.0
    for k in range(3):
        total += clipped(x * k, -4.0, 6.0)
    return total


class Scorer:
    def __init__(self, slope: Any) -> None:
        self.slope = slope
        self.__secret = 2.0

    def leaky(self, x: Any) -> Any:
        return x if x > 0 else x * self.slope * self.__secret

    @classmethod
    def scale(cls, x: Any) -> Any:
        return x * 2 if x > 1 else x

    @staticmethod
    def shift(x: Any) -> Any:
        return x + 1 if x > 0 else x - 1


class Louder(Scorer):
    def leaky(self, x: Any) -> Any:
        if x > 3:
            return super().leaky(x) * 10
        return super().leaky(x)


def method(x: Any) -> Any:
    scorer = Louder(0.1)
    return scorer.leaky(x) + scorer.scale(x) + Scorer.shift(x)


def make_closure(step: Any) -> Any:
    calls = 0

    def walk(x: Any) -> Any:
        nonlocal calls
        calls = step
        while x < 20:
            set_max_steps(60)
            x = x + calls
        return x

    return walk


def defaults(x: Any, y: Any = 2.0, *more: Any, scale: Any = 3.0, **named: Any) -> Any:
    if x > y:
        return x * scale
    return y - x


def call_with_defaults(x: Any) -> Any:
    named: dict[str, Any] = {"y": 4.0}
    return defaults(x) + defaults(x, 1.0, scale=2.0) + defaults(x, **named)


def static_branches(x: Any, mode: Any = "double", offset: Any = None) -> Any:
    if mode == "double":
        x = x * 2
    elif mode == "text only":
        return "never traced"
    if offset is None:
        return x if x > 0 else -x
    return x + offset


def nested_functions(x: Any) -> Any:
    factor = 2

    def inner(v: Any) -> Any:
        if v > 1:
            return v * factor
        return v

    twice: Any = lambda v: inner(inner(v)) if v > 0 else -v  # noqa: E731
    return twice(x) + inner(x)


def comprehension(xs: Any) -> Any:
    kept = [x if x > 0 else 0 for x in (xs[0], xs[1], xs[2])]
    return sum(k * k for k in kept) + max(kept) - min(xs[3], xs[4])


def with_assert(x: Any) -> Any:
    assert x > -1000, f"{x} is small"
    assert x is not None
    return x + 1 if x > 0 else x


def for_else(xs: Any, limit: Any) -> Any:
    found = -1
    for i, x in enumerate(xs):
        if x > limit:
            found = i
            break
    else:
        found = 100
    return found


def while_else(n: Any) -> Any:
    k = 0
    while k < n:
        if k == 5:
            break
        k += 1
    else:
        k = k + 50
    return k


def return_from_nested(rows: Any, limit: Any) -> Any:
    for i, row in enumerate(rows):
        for x in row:
            if x > limit:
                return x, i
    return limit * 0 - 1, 0


def chained(x: Any, y: Any) -> Any:
    if -2 < x < y <= 6:
        return 1
    return 0 if x == y != 3 else 2


def bisect(target: Any) -> Any:
    low, high = 0.0, 30.0
    while True:
        set_max_steps(40)
        middle = (low + high) / 2
        if high - low < 1e-2:
            break
        if middle * middle < target:
            low = middle
        else:
            high = middle
    return round(1.0) * middle


def backward_range(n: Any, step: Any) -> Any:
    total = 0
    for i in range(n, -3, -1):
        total = total * 2 % 101 + i
    for i in range(-2, n, step):
        total += i
    return total


def zipped(xs: Any, ys: Any) -> Any:
    total = 0.0
    for i, (x, y) in enumerate(zip(xs, ys)):  # noqa: B905
        if x > y:
            total += x * y
        else:
            total -= i
    return total


def dict_state(n: Any) -> Any:
    state = {"sum": 0, "odd": 0}
    for i in range(n):
        state = {"sum": state["sum"] + i, "odd": state["odd"] + (1 if i % 2 == 1 else 0)}
    return state["sum"], state["odd"]


def sign(x: Any) -> Any:
    return 1.0 if x > 0 else -1.0


def mapped(xs: Any) -> Any:
    return jax.vmap(lambda x: sign(x) * x)(xs)


def long_range(x: Any) -> Any:
    total = x
    for i in range(100):
        loop_options(unroll=False)
        total = total * 0.9 + i * 0.01
        last = total if i > 3 else 0.0
    return total + last + i


def range_with_exit(x: Any) -> Any:
    for i in range(8):
        if x > 50:
            break
        x = x * 1.5 + i
    return x


def horner(coefficients: Any, x: Any) -> Any:
    y = 0.0
    for c in coefficients:
        y = y * x + c
    return y


def repeated(x: Any, n: Any) -> Any:
    for _ in range(n):
        loop_options(max_steps=10)
        x = x * 1.1 if x < 4 else x - 0.5
    return x


def builtins_(x: Any, y: Any) -> Any:
    low, high = min(x, y), max(x, y, 0)
    return int(low), float(high) + abs(x), bool(x > y)


def annotated(x: Any) -> Any:
    y: float = x
    z: float
    z = 0.0
    if x > 0:
        y += 2
        z = 1.0
    else:
        y -= 2
    del x
    return y * 10 + z


def in_with_and_try(x: Any) -> Any:
    with np.errstate(all="ignore"):
        if x > 0:
            return x
    try:
        if x < -4:
            return x * 2
    finally:
        x = x + 1
    return x


def matched(x: Any, kind: Any = "b") -> Any:
    match kind:
        case "a":
            return x
        case "b":
            y = x if x > 0 else x * 3
        case _:
            y = x
    return y


@do_not_convert
def untouched(x: Any) -> Any:
    return x * 2 if isinstance(x, float) else x + x


def calls_untouched(x: Any) -> Any:
    return untouched(x) if x > 0 else x


def loop_value_after(xs: Any) -> Any:
    for x in xs:
        last = x if x > 0 else -x
    return last + x


def walrus(n: Any) -> Any:
    k = 0
    while (left := n - k) > 3:
        k += 1
    return k, left


def walrus_first(x: Any) -> Any:
    if (y := x * 2) > 3 and y < 9:
        return y
    z = x if (v := x - 1) > 0 else v
    return z + v + (1 if -9 < (w := x) < 2 else 0) + w


def returns_from_an_endless_loop(x: Any) -> Any:
    while True:
        set_max_steps(40)
        if x < 1:
            return x
        x = x / 2


def member(n: Any) -> Any:
    if n in (1, 3) or n not in (2, 3, 4):
        return n * 10
    return 5 if 3 in [n, n + 1] else n


def reduced(xs: Any) -> Any:
    largest = functools.reduce(lambda a, b: a if a > b else b, [xs[0], xs[1], xs[2]])
    *_, last = itertools.accumulate([xs[3], xs[4]], lambda a, b: a + b if a > 0 else b)
    return largest + last


def python_state_in_a_long_range(x: Any) -> Any:
    weights, numbers, seen, out = [k / 8 for k in range(40)], iter(range(40)), {"count": 0}, []

    def tick() -> Any:
        seen["count"] += 1
        return seen["count"]

    for i in range(40):
        w = weights.pop()
        x = x * 0.5 + w - next(numbers) * i + tick()
        out.append(x)
    return sum(out)


def set_behind_a_return(x: Any, near: Any = True) -> Any:
    if near:
        if x > 1:
            return x * 10
        y = x + 1
    else:
        y = 3.0
    try:
        if y > 0:
            return y
        z = y * 2
    finally:
        x = x + y
    return x + z


def every_path_of_a_try_returns(x: Any, kind: Any = "b") -> Any:
    try:
        with np.errstate(all="ignore"):
            if x > 1:
                return x
        match kind:
            case "a":
                return x * 2
            case _:
                return x * 3
    except ValueError:
        return x


def newton_by_hand(a: Any) -> Any:
    return jax.lax.fori_loop(
        0, 40, lambda _, x: jnp.where(abs(x * x - a) > 1e-3 * a, (x + a / x) / 2, x), a
    )  # fmt: skip


def horner_by_hand(coefficients: Any, x: Any) -> Any:
    y, _ = jax.lax.scan(lambda y, c: (y * x + c, None), jnp.float32(0), coefficients)
    return y


def repeated_by_hand(x: Any, n: Any) -> Any:
    def step(x: Any, k: Any) -> Any:
        return jnp.where(k < n, jnp.where(x < 4, x * 1.1, x - 0.5), x), None

    return jax.lax.scan(step, x, jnp.arange(10))[0]


TABLE = [
    Case(collatz, (st.integers(1, 20),)),
    Case(gcd, (st.integers(0, 500), st.integers(0, 500))),
    Case(newton, (POSITIVE,), (0,), by_hand=newton_by_hand),
    Case(early_return, (EIGHTHS,), (0,)),
    Case(nested_loops, (COUNT, COUNT)),
    Case(break_and_continue, (ROWS,), (0,)),
    Case(short_circuit, (EIGHTHS, EIGHTHS)),
    Case(ternary, (EIGHTHS, EIGHTHS), (0, 1)),
    Case(tuple_state, (COUNT,)),
    Case(accumulate, (ROWS,), (0,), reference=accumulate_numpy),
    Case(over_rows, (MATRIX, st.lists(EIGHTHS, min_size=2, max_size=2).map(np.array)), (0, 1)),
    Case(array_condition, (ROWS,), (0,)),
    Case(power, (EIGHTHS,), (0,), static={"n": 5}),
    Case(callee_with_branches, (EIGHTHS,), (0,)),
    Case(method, (EIGHTHS,), (0,)),
    Case(make_closure(3), (EIGHTHS,), (0,)),
    Case(call_with_defaults, (EIGHTHS,), (0,)),
    Case(static_branches, (EIGHTHS,), (0,)),
    Case(static_branches, (EIGHTHS,), (0,), static={"mode": "plain", "offset": 3}),
    Case(nested_functions, (EIGHTHS,), (0,)),
    Case(comprehension, (ROWS,), (0,)),
    Case(with_assert, (EIGHTHS,), (0,)),
    Case(for_else, (ROWS, EIGHTHS)),
    Case(while_else, (COUNT,)),
    Case(return_from_nested, (MATRIX, EIGHTHS)),
    Case(chained, (EIGHTHS, EIGHTHS)),
    Case(bisect, (POSITIVE,)),
    Case(backward_range, (COUNT, st.integers(1, 4))),
    Case(zipped, (ROWS, ROWS), (0, 1)),
    Case(dict_state, (COUNT,)),
    Case(long_range, (EIGHTHS,), (0,)),
    Case(range_with_exit, (EIGHTHS,), (0,)),
    Case(horner, (ROWS, st.integers(-8, 8).map(lambda k: k / 8)), (0, 1), by_hand=horner_by_hand),
    Case(repeated, (EIGHTHS, COUNT), (0,), by_hand=repeated_by_hand),
    Case(builtins_, (EIGHTHS, EIGHTHS)),
    Case(annotated, (EIGHTHS,), (0,)),
    Case(in_with_and_try, (EIGHTHS,), (0,)),
    Case(matched, (EIGHTHS,), (0,)),
    Case(calls_untouched, (EIGHTHS,), (0,)),
    Case(loop_value_after, (ROWS,), (0,)),
    Case(walrus, (COUNT,)),
    Case(walrus_first, (EIGHTHS,)),
    Case(returns_from_an_endless_loop, (EIGHTHS,), (0,)),
    Case(member, (COUNT,)),
    Case(set_behind_a_return, (EIGHTHS,), (0,)),
    Case(every_path_of_a_try_returns, (EIGHTHS,), (0,)),
    Case(reduced, (ROWS,), (0,)),
    Case(python_state_in_a_long_range, (EIGHTHS,), (0,)),
]
