"""Every mistake is told at the user's own line: file and number, what is wrong, and the fix."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import TensorSpec, custom_gradient, do_not_convert, function, loop_options, set_max_steps
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

X = np.float32(2)
XS = np.arange(4, dtype=np.float32)


def line(mark: str) -> str:
    """ "file:line" of the line that ends with a mark."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [at for at, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return f"{__file__}:{number}"


def grows(x: Any) -> Any:
    y = jnp.zeros(1)
    while x > 0:  # grows
        y = jnp.concatenate([y, y])
        x = x - 1
    return y


def changes_dtype(xs: Any) -> Any:
    total = jnp.int32(0)
    for x in xs:  # dtype
        total = total + x
    return total


def none_first(xs: Any) -> Any:
    best = None
    for x in xs:  # none
        if best is None or x > best:
            best = x
    return best


def one_branch(x: Any) -> Any:
    if x > 0:  # branch
        y = x
    return y


def two_shapes(x: Any) -> Any:
    if x > 0:  # shapes
        y = jnp.zeros(3)
        x = x + 1
    else:
        y = jnp.zeros(2)
    return y + x


def two_kinds(x: Any) -> Any:
    return "small" if x > 0 else 3  # kinds


def only_in_loop(x: Any) -> Any:
    while x > 0:  # inside
        y = x
        x = x - 1
    return y


def no_return(x: Any) -> Any:  # noqa: RET503
    for k in range(3):
        if x > k:
            return x


def array_condition(xs: Any) -> Any:
    if xs > 0:  # array
        return xs
    return -xs


def array_and(xs: Any) -> Any:
    return 1 if (xs > 0 and xs < 3).any() else 0  # and


def list_append(xs: Any) -> Any:
    found = []
    for x in xs:  # append
        found.append(x)
    return found


def pops(xs: Any) -> Any:
    weights, total = [1.0, 2.0, 3.0, 4.0], 0.0
    for x in xs:  # pop
        total += weights.pop() * x
    return total


def takes_next(x: Any) -> Any:
    weights = {"all": iter([1.0, 2.0])}
    if x > 0:  # next
        x = x * next(weights["all"])
    return x


def append_under_a_key(x: Any) -> Any:
    found: dict[str, list[Any]] = {"positive": []}
    if x > 0:  # under a key
        key = "positive"
        found[key].append(x)
    return found["positive"]


def keeps_in_a_loop(xs: Any) -> Any:
    total = 0.0

    def add(x: Any) -> None:
        nonlocal total
        total = total + x  # nonlocal

    for x in xs:
        add(x)
    return total


def keeps_in_a_branch(x: Any) -> Any:
    seen = []

    def note(x: Any) -> Any:
        seen.append(x * 2)  # noted
        return x

    y = note(x) if x > 0 else x
    return seen[0] + y


CALLS = {"n": 0}


def count(x: Any) -> Any:
    CALLS["n"] += 1  # counted
    return x


def counts_calls(xs: Any) -> Any:
    total = 0.0
    for x in xs:
        total += count(x)
    return total * CALLS["n"]


class Tally:
    def __init__(self) -> None:
        self.n = 0

    def add(self, x: Any) -> Any:
        self.n += 1  # tallied
        return x


def counts_on_an_object(xs: Any) -> Any:
    tally, total = Tally(), 0.0
    for x in xs:
        total += tally.add(x)
    return total / tally.n


def noted(notes: list[int], x: Any) -> Any:
    notes.append(1)  # in the argument
    return x


def counts_in_an_argument(x: Any) -> Any:
    notes: list[int] = []
    while x > 0:
        x = noted(notes, x) - 1
    return x + len(notes)


def takes_from_an_iterator(xs: Any) -> Any:
    names, total = iter([1.0, 2.0, 3.0, 4.0]), 0.0

    def weighted(x: Any) -> Any:
        weight = next(names)  # taken
        return x * weight

    for x in xs:
        total += weighted(x)
    return total


@do_not_convert
def keep(kept: list[Any], x: Any) -> Any:
    kept.append(x * 2)  # kept
    return x


def keeps_unconverted(xs: Any) -> Any:
    kept: list[Any] = []
    total = 0.0
    for x in xs:
        total += keep(kept, x)
    return total + kept[0]


def walrus_in_a_ternary(x: Any) -> Any:
    return (z := x * 2) + z if x > 0 else x  # ternary


def walrus_after_and(x: Any) -> Any:
    return x if (x > 0 and (y := x * 2) < 3) else y  # walrus and


class Model:
    total = 0.0

    def add(self, x: Any) -> Any:
        if x > 0:  # attribute
            self.total = self.total + x
        return x


def add_to_attribute(x: Any) -> Any:
    return Model().add(x)


def dict_key(x: Any) -> Any:
    out = {}
    if x > 0:  # key
        out["a"] = x
    return out


def raises(x: Any) -> Any:
    if x < 10:
        raise ValueError("too small")  # raise
    return x


def numpy_call(x: Any) -> Any:
    y = x * 2
    return np.sin(y)  # numpy


def list_index(x: Any) -> Any:
    names = [1.0, 2.0, 3.0]
    return names[x.astype(int)]  # index


def text_out(x: Any) -> Any:  # text
    return {"label": "yes", "value": x}


def float_range(x: Any) -> Any:
    total = 0
    for i in range(x):  # range
        total += i
    return total


def bad_hint(x: Any) -> Any:
    while x > 0:
        set_max_steps(0)  # hint
        x = x - 1
    return x


def endless(x: Any) -> Any:
    if x > 0:
        return endless(x - 1)  # recursion
    return x


def callee(x: Any) -> Any:
    if x > 0:  # callee
        z = x
    return z


def calls(x: Any) -> Any:
    y = x + 1
    return callee(y)


CASES: list[tuple[Callable[..., Any], Any, str, str]] = [
    (grows, X, "grows", r"'y' is float32\[1\] before a step of this loop and float32\[2\] after it"),
    (changes_dtype, XS, "dtype", r"'total' is int32\[\] before a step of this loop and float32\[\] after it"),
    (none_first, XS, "none", r"'best' is None before a step"),
    (one_branch, X, "branch", "'y' has a value on one path of a branch only"),
    (two_shapes, X, "shapes", r"'y' is float32\[3\] on one path of a branch and float32\[2\] on the other"),
    (two_kinds, X, "kinds", "'small' on one path"),
    (only_in_loop, X, "inside", "'y' gets its value only inside the loop"),
    (array_condition, XS, "array", r"a tensor of shape \(4,\), which has no single truth value"),
    (array_and, XS, "and", "what comes before `and`"),
    (list_append, XS, "append", r"'found.append' is called inside a for"),
    (pops, XS, "pop", r"'weights.pop' is called inside a for"),
    (takes_next, X, "next", r"next\(weights\[.all.\]\). is called inside an if"),
    (append_under_a_key, X, "under a key", r"'found\[key\].append' is called inside an if"),
    (keeps_in_a_loop, XS, "nonlocal", "'total' is assigned by a function that a loop or branch of the graph calls"),
    (keeps_in_a_branch, X, "noted", "'seen.append' is called by a function that a loop or branch of the graph calls"),
    (
        counts_calls,
        XS,
        "counted",
        r"'CALLS\['n'\]' is assigned by a function|\"CALLS\['n'\]\" is assigned by a function",
    ),
    (counts_on_an_object, XS, "tallied", "'self.n' is assigned by a function that a loop"),
    (counts_in_an_argument, X, "in the argument", "'notes.append' is called by a function that a loop"),
    (takes_from_an_iterator, XS, "taken", "'next.names.' is called by a function that a loop"),
    (keeps_unconverted, XS, "kept", "a tensor made inside a loop or branch of the graph is kept outside"),
    (walrus_in_a_ternary, X, "ternary", "a tensor decides on a ternary that assigns by :="),
    (walrus_after_and, X, "walrus and", "a tensor decides on an `and` or `or` that assigns by :="),
    (add_to_attribute, X, "attribute", r"'self.total' is assigned inside an if"),
    (dict_key, X, "key", r"""'out\["a"\]|"out\['a'\]" is assigned inside an if"""),
    (raises, X, "raise", "a tensor decides whether this `raise` runs"),
    (numpy_call, X, "numpy", "numpy_call: "),
    (list_index, X, "index", "list_index: "),
    (text_out, X, "text", "text_out returns 'yes'"),
    (float_range, X, "range", "range takes whole numbers and was given float32"),
    (bad_hint, X, "hint", "max_steps is 0"),
    (endless, X, "recursion", "endless: maximum recursion depth"),
    (calls, X, "callee", "'z' has a value on one path"),
]


@pytest.mark.parametrize(("fn", "value", "mark", "message"), CASES, ids=[case[0].__name__ for case in CASES])
def test_mistakes_are_told_at_the_users_line(fn: Any, value: Any, mark: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        function(fn)(value)
    assert found.value.where == line(mark)
    assert found.value.fix


def closed_over(xs: Any) -> Any:
    total = 0.0
    for x in xs:
        parts = [x]

        def add(value: Any) -> None:
            parts.append(value)  # noqa: B023  # the very one

        add(x * 2)
        add(x * 3)
        total = total + sum(parts)
    return total


def local_to_a_callee(xs: Any) -> Any:
    def spread(x: Any) -> Any:
        tally, found = Tally(), []

        def add(value: Any) -> None:
            nonlocal tally
            found.append(value)
            tally = tally
            tally.add(value)

        for k in range(3):
            add(x * k)
        return sum(found) * tally.n

    total = 0.0
    for x in xs:
        total = total + spread(x)
    return total


@pytest.mark.parametrize("fn", [closed_over, local_to_a_callee])
def test_functions_called_in_a_loop_may_change_what_the_loop_or_they_make(fn: Any) -> None:
    np.testing.assert_allclose(function(fn)(XS), fn(XS.tolist()), rtol=1e-6)


def test_asserts_show_tensors_by_name_and_shape() -> None:
    @function(checks=True)
    def told(x: Any, limit: int = 3) -> Any:
        assert (x > 0).all(), f"{x.sum()} of {limit:>3} and {x!r}"
        assert x[0] < 5, "first is %s" % x  # noqa: UP031
        assert x[1] < 5, x
        return x

    for values, said in (
        ([-1, 2], r"x\.sum\(\): float32\[\] of   3 and x: float32\[2\]"),
        ([9, 1], r"first is float32\[2\]"),
        ([1, 9], r"float32\[2\]"),
    ):
        with pytest.raises(InputError, match=said) as found:
            told(jnp.float32(values))
        assert "Tracer" not in str(found.value)
        with pytest.raises(AssertionError):
            told.eager(jnp.float32(values))


@pytest.mark.parametrize("options", [{"input_signature": [TensorSpec((None,), "float32")]}, {"reduce_retracing": True}])
def test_asserts_hold_for_a_signature_of_any_size(options: dict[str, Any]) -> None:
    @function(checks=True, **options)
    def halved(x: Any) -> Any:
        assert (x > 0).all(), "not positive"
        return x / 2

    for size in (2, 3, 4):
        np.testing.assert_array_equal(halved(jnp.ones(size)), np.full(size, 0.5, np.float32))
        with pytest.raises(InputError, match="an assertion of halved failed: not positive"):
            halved(-jnp.ones(size))
    assert halved.trace_count <= 2
    if "input_signature" in options:
        with pytest.raises(InputError, match="x"):
            halved(jnp.ones((2, 2)))


def test_a_path_without_a_return_is_told() -> None:
    with pytest.raises(InputError, match="a value on some paths and none on others") as found:
        function(no_return)(X)
    assert found.value.where is not None
    assert found.value.where.startswith(f"{__file__}:")


def unbounded(x: Any) -> Any:
    while x < 100:  # unbounded
        x = x * x
    return x


def unbounded_for(x: Any, n: Any) -> Any:
    for _ in range(n):  # unbounded for
        x = x * 1.5
    return x


@pytest.mark.parametrize("transform", [jax.grad, jax.jacrev, jax.value_and_grad])
def test_a_gradient_through_an_unbounded_loop_is_told_at_the_loop(transform: Any) -> None:
    with pytest.raises(InputError, match="number of steps is not bounded") as found:
        transform(function(unbounded))(jnp.float32(2))
    assert found.value.where == line("unbounded")
    assert "set_max_steps" in (found.value.fix or "")
    with pytest.raises(InputError) as found:
        transform(function(unbounded_for))(jnp.float32(2), jnp.int32(3))
    assert found.value.where == line("unbounded for")


def test_an_unbounded_loop_has_forward_derivatives_and_batches() -> None:
    graph = function(unbounded)
    value, slope = jax.jvp(graph, (jnp.float32(2),), (jnp.float32(1),))
    assert (float(value), float(slope)) == (256.0, 8 * 2.0**7)  # x**8 from 2
    np.testing.assert_allclose(jax.jacfwd(graph)(jnp.float32(2)), 8 * 2.0**7)
    np.testing.assert_array_equal(jax.vmap(graph)(jnp.float32([2, 3, 200])), [256.0, 6561.0, 200.0])


def test_max_steps_of_the_function_gives_gradients() -> None:
    graph = function(max_steps=8)(unbounded)
    np.testing.assert_allclose(jax.grad(graph)(jnp.float32(2)), 8 * 2.0**7)
    np.testing.assert_allclose(jax.grad(function(max_steps=8)(unbounded_for))(jnp.float32(2), jnp.int32(3)), 1.5**3)


def test_a_loop_cut_short_by_max_steps_gives_nan() -> None:
    def steps(x: Any) -> Any:
        while x < 100:
            loop_options(max_steps=3)
            x = x + 1
        return x

    graph = function(steps)
    assert float(graph(jnp.float32(97.5))) == 100.5  # three steps are enough
    assert np.isnan(graph(jnp.float32(96.5)))


def own_error(x: Any) -> Any:
    if x.ndim == 0:
        return x
    raise KeyError("mine")  # own


def test_the_users_own_errors_pass_with_their_lines() -> None:
    with pytest.raises(KeyError, match="mine") as found:
        function(own_error)(XS)
    frames = traceback.extract_tb(found.value.__traceback__)
    assert line("own") in [f"{frame.filename}:{frame.lineno}" for frame in frames]


def unbound(x: Any) -> Any:
    if x.ndim == 7:
        y = x
    return y  # unbound


def test_an_unbound_variable_is_pythons_error() -> None:
    with pytest.raises(UnboundLocalError, match="'y'") as found:
        function(unbound)(X)
    assert line("unbound") in str(found.value)


@function(checks=True)
def checked(x: Any) -> Any:
    assert x > 0, "x must be positive"  # assertion
    if x > 5:
        assert x < 10  # inner assertion
    for k in range(3):
        assert x != k + 0.5
    return x * 2


def test_asserts_on_tensors_are_checks_of_the_graph() -> None:
    assert float(checked(jnp.float32(3))) == 6.0
    with pytest.raises(InputError, match="x must be positive") as found:
        checked(jnp.float32(-3))
    assert found.value.where == line("assertion")
    with pytest.raises(InputError) as found:
        checked(jnp.float32(12))
    assert found.value.where == line("inner assertion")
    with pytest.raises(InputError):
        checked(jnp.float32(1.5))
    with pytest.raises(AssertionError, match="positive"):
        checked.eager(jnp.float32(-3))


def test_without_checks_asserts_on_tensors_are_left_out() -> None:
    assert float(function(checked.python_function)(jnp.float32(-3))) == -6.0


def test_a_function_without_source_is_told() -> None:
    scope: dict[str, Any] = {}
    exec("def made(x):\n    return x if x > 0 else -x", scope)
    with pytest.raises(InputError, match="made") as found:
        function(scope["made"])(X)
    assert "its source cannot be read" in (found.value.fix or "")


def test_without_autograph_python_decides_and_says_what_to_do() -> None:
    with pytest.raises(InputError, match="array_condition") as found:
        function(autograph=False)(array_condition)(X)
    assert found.value.where == line("array")
    assert "lax.cond" in (found.value.fix or "")


def test_numpy_objects_are_named() -> None:
    with pytest.raises(InputError, match=r"argument \"x\['label'\]\" is a numpy array of"):
        function(text_out)({"label": np.array(["a"], object)})


@function(input_signature=[TensorSpec((None, 3)), TensorSpec((None,))])
def signed(x: Any, y: Any) -> Any:
    return x.sum(1) + y


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.ones((2, 4), np.float32), np.ones(2, np.float32), r"argument 'x' is float32\[2,4\]"),
        (np.ones((2, 3), np.int32), np.ones(2, np.float32), r"argument 'x' is int32\[2,3\]"),
        (np.ones((2, 3), np.float32), np.ones((2, 1), np.float32), r"argument 'y' is float32\[2,1\]"),
        (np.ones((0, 3), np.float32), np.ones(0, np.float32), "b is an unknown size, which is at least 1"),
        (np.ones((2, 3), np.float32), np.ones(5, np.float32), "b is 2 in argument 'x' and 5 in 'y'"),
    ],
)
def test_an_input_signature_is_kept(x: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        signed(x, y)  # signed
    assert found.value.where == line("signed")


def test_a_branch_on_the_unknown_batch_is_told() -> None:
    @function(input_signature=[TensorSpec((None,))])
    def decides(x: Any) -> Any:
        if x.shape[0] > 3:  # unknown size
            return x
        return -x

    with pytest.raises(InputError, match="decides") as found:
        decides(XS)
    assert found.value.where == line("unknown size")


@pytest.mark.parametrize("spec", [((None, -1), "float32"), (("a b",), "float32"), ((3,), "floaty")])
def test_a_wrong_spec_is_refused(spec: Any) -> None:
    with pytest.raises(InputError, match="TensorSpec has") as found:
        TensorSpec(*spec)
    assert found.value.where is not None
    assert found.value.where.startswith(__file__)


@custom_gradient
def no_pair(x: Any) -> Any:  # no pair
    return x * 2


@custom_gradient
def too_many(x: Any) -> Any:  # too many
    return x * 2, lambda dy: (dy, dy)


@custom_gradient
def wrong_shape(x: Any) -> Any:  # wrong shape
    return x.sum(), lambda dy: dy


@pytest.mark.parametrize(
    ("fn", "mark", "message"),
    [
        (no_pair, "no pair", r"must return \(y, grad\)"),
        (too_many, "too many", "gives 2 values for 1 arguments"),
        (wrong_shape, "wrong shape", "has shapes"),
    ],
)
def test_wrong_custom_gradients_are_told(fn: Any, mark: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as found:
        jax.grad(lambda x: fn(x).sum())(XS)
    where, _, number = line(mark).rpartition(":")
    assert found.value.where == f"{where}:{int(number) - 1}"  # its first line is that of the decorator
