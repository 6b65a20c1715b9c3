"""Branches, loops, nested pipelines and exits: what runs, on what, and what is skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines import Home, Pipeline, PipelineFunction, RunResult, resume, run_pipeline

Pipe = Callable[..., PipelineFunction[..., object]]

SCALARS = """
    from typing import NamedTuple
    import drivetrain as dt
    from drivetrain.pipelines import current

    class Numbers(dt.Artifact):
        total: int = 0
        parts: list[int] = []

    class Both(NamedTuple):
        numbers: Numbers
        size: int

    def made(total: int, parts: list[int] | None = None) -> Numbers:
        numbers = Numbers.new(total=total, parts=parts or [])
        (numbers.content / "total.txt").write_text(str(total))
        return numbers

    @dt.component
    def Make(*, count: int = 3) -> Numbers:
        return made(count, list(range(count)))

    @dt.component
    def Start(*, count: int) -> Numbers:
        return made(count, list(range(count)))

    @dt.component
    def Count(numbers: Numbers) -> int:
        return numbers.total

    @dt.component
    def Names(*, many: int) -> list[str]:
        return [f"n{i}" for i in range(many)]

    @dt.component
    def Pair(*, count: int) -> Both:
        return Both(made(count), count * 10)

    @dt.component
    def Sum(numbers: list[Numbers]) -> Numbers:
        return made(sum(one.total for one in numbers), [one.total for one in numbers])

    @dt.component
    def Add(left: Numbers, right: Numbers | None = None) -> Numbers:
        return made(left.total + (right.total if right else 0))

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
        return made(1)
"""


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


def value(result: RunResult, node: str) -> object:
    (records,) = result.nodes[node].outputs.values()
    properties = records[0].properties
    return properties["value"] if "value" in properties else properties["total"]


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return lambda body, more="", **modules: pipe(body, parts=SCALARS + more, **modules)


def test_a_returned_value_is_a_parameter_and_a_condition(home: Home, flow: Pipe) -> None:
    body = """
        n = Count(Make(count=count))
        Note(text="twice", number=n)
        with dt.when(n > 2):
            Make.options(id="Big")(count=n)
        with dt.otherwise(n == 2):
            Make.options(id="Two")(count=2)
        with dt.otherwise():
            Make.options(id="Small")(count=1)
    """
    for count, ran in ((3, "Big"), (2, "Two"), (0, "Small")):
        result = run_pipeline(home, flow(body), {"count": count})
        assert result.state == "COMPLETE"
        assert value(result, "Note") == f"twice None {count}"
        assert {name for name in ("Big", "Two", "Small") if result.nodes[name].state != "SKIPPED"} == {ran}
    assert result.nodes["Big"].reason == "Count > 2 is false"


def test_a_part_of_a_list_of_no_said_type_is_compared(home: Home, flow: Pipe) -> None:
    body = "n = Make(count=count)\nwith dt.when(n.parts[1] == 1):\n    Note(text='one')"
    assert states(run_pipeline(home, flow(body))) == {"Make": "COMPLETE", "Note": "COMPLETE"}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_one_of_joins_branches_and_optional_lets_nothing_stand_in(home: Home, flow: Pipe, count: int) -> None:
    body = """
        n = Make(count=count)
        with dt.when((n.total > 0) & (n.total < 3)):
            few = Make.options(id="Few")(count=10)
        with dt.otherwise():
            many = Make.options(id="Many")(count=20)
        Add(dt.one_of(few, many), dt.optional(few))
        Note(text="x", number=dt.one_of(few.total, many.total))
        Add.options(id="Needs")(few)
    """
    result = run_pipeline(home, flow(body), {"count": count})
    assert value(result, "Add") == 20
    assert value(result, "Note") == f"x None {10 if 0 < count < 3 else 20}"
    assert result.nodes["Needs"].state == ("COMPLETE" if 0 < count < 3 else "SKIPPED")
    assert result.state == "COMPLETE"


def test_one_of_nothing_is_skipped(home: Home, flow: Pipe) -> None:
    body = """
        n = Make(count=count)
        with dt.when(n.total > 5):
            a = Make.options(id="A")()
        with dt.when(n.total > 6):
            b = Make.options(id="B")()
        Add(dt.one_of(a, b))
        Add.options(id="Onward")(n, dt.optional(b))
    """
    result = run_pipeline(home, flow(body))
    assert states(result) == {
        "Make": "COMPLETE",
        "A": "SKIPPED",
        "B": "SKIPPED",
        "Add": "SKIPPED",
        "Onward": "COMPLETE",
    }


def test_a_loop_over_a_returned_list_fans_out_and_in(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            made = Make(count=item)
            return Add(made)
        parts = Start(count=count).parts
        totals = dt.map_(one, over=parts, max_parallel=2)
        Sum(totals)
        Total(values=totals.total)
    """
    result = run_pipeline(home, flow(body), {"count": 4})
    assert states(result) == dict.fromkeys(
        ["Start", *(f"{n}[{i}]" for n in ("Make", "Add") for i in range(4)), "Sum", "Total"], "COMPLETE"
    )
    assert value(result, "Sum") == value(result, "Total") == 6
    assert {result.nodes[f"Make[{i}]"].reason for i in range(4)} == {"first run"}
    again = run_pipeline(home, flow(body), {"count": 5})
    assert value(again, "Sum") == 10
    assert [again.nodes[f"Make[{i}]"].state for i in range(5)] == ["CACHED"] * 4 + ["COMPLETE"]
    empty = run_pipeline(home, flow(body), {"count": 0})
    assert states(empty) == dict.fromkeys(["Start", "Sum", "Total"], "COMPLETE")
    assert value(empty, "Sum") == 0


def test_loops_nest_and_items_fail_alone(home: Home, flow: Pipe) -> None:
    body = """
        def outer(many):
            def inner(name):
                return Note(text=name, number=many)
            notes = dt.map_(inner, over=Names(many=many), id="inner")
            return Note.options(id="Gather")(text="all", more=notes)
        gathered = dt.map_(outer, over=[0, 1, 2])
        Note.options(id="Last")(text="end", more=gathered)
    """
    result = run_pipeline(home, flow(body))
    assert result.state == "COMPLETE"
    assert {name for name in result.nodes if name.startswith("Note")} == {"Note[1,0]", "Note[2,0]", "Note[2,1]"}
    assert value(result, "Gather[2]") == "all ['n0 None 2', 'n1 None 2'] None"
    assert value(result, "Gather[0]") == "all [] None"
    assert "all ['n0 None 1'] None" in str(value(result, "Last"))


def test_an_item_that_fails_blocks_what_gathers_and_no_other_item(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            return Fails(Make(count=item["n"]), when=item["bad"])
        Sum(dt.map_(one, over=[{"n": 1, "bad": False}, {"n": 2, "bad": True}, {"n": 3, "bad": False}]))
    """
    result = run_pipeline(home, flow(body))
    assert {name: state for name, state in states(result).items() if "Make" not in name} == {
        "Fails[0]": "COMPLETE", "Fails[1]": "FAILED", "Fails[2]": "COMPLETE", "Sum": "BLOCKED",
    }  # fmt: skip
    assert result.nodes["Sum"].reason == "Fails[1] failed"
    assert result.state == "FAILED"


def test_a_branch_in_a_loop_filters_what_is_gathered(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            with dt.when(item >= 2):
                made = Make(count=item)
            return made
        Sum(dt.map_(one, over=[1, 2, 3]))
    """
    result = run_pipeline(home, flow(body))
    assert result.nodes["Make[0]"].state == "SKIPPED"
    assert value(result, "Sum") == 5


def test_a_loop_that_is_held_back_says_so_once(home: Home, flow: Pipe) -> None:
    body = """
        start = Make(count=count)
        with dt.when(start.total > 10):
            made = dt.map_(lambda item: Make.options(id="Inside")(count=item), over=start.parts)
        Sum(made)
        Sum.options(id="After")(dt.map_(lambda item: Make.options(id="In2")(count=item), over=Fails(start).parts))
    """
    result = run_pipeline(home, flow(body))
    assert states(result) == {
        "Make": "COMPLETE", "Inside": "SKIPPED", "Sum": "SKIPPED",
        "Fails": "FAILED", "In2": "BLOCKED", "After": "BLOCKED",
    }  # fmt: skip
    assert result.nodes["Inside"].reason == "Make.total > 10 is false"


def test_a_pair_of_outputs_comes_back_as_two_lists(home: Home, flow: Pipe) -> None:
    body = """
        def one(item):
            both = Pair(count=item)
            return both.numbers, both.size
        numbers, sizes = dt.unzip(dt.map_(one, over=[1, 2, 3]))
        Sum(numbers)
        Total(values=sizes)
    """
    result = run_pipeline(home, flow(body))
    assert (value(result, "Sum"), value(result, "Total")) == (6, 60)


def test_exits_run_however_the_rest_ended_and_know_it(home: Home, flow: Pipe) -> None:
    body = """
        failed = Fails(when=count > 3)
        made = Make(count=count)
        with dt.on_exit() as run:
            Note(text=run.state, more=run.failed, number=dt.optional(made.total))
            with dt.when(run.state == "FAILED"):
                Note.options(id="Alarm")(text=run.reason)
    """
    good = run_pipeline(home, flow(body.replace("when=count > 3", "when=False")))
    assert states(good) == {"Fails": "COMPLETE", "Make": "COMPLETE", "Note": "COMPLETE", "Alarm": "SKIPPED"}
    assert value(good, "Note") == "COMPLETE [] 3"
    bad = run_pipeline(home, flow(body.replace("when=count > 3", "when=True")))
    assert value(bad, "Note") == "FAILED ['Fails'] 3"
    assert value(bad, "Alarm") == "ValueError: told to fail None None"
    assert bad.state == "FAILED"
    assert run_pipeline(home, flow(body.replace("when=count > 3", "when=True"))).nodes["Note"].state == "COMPLETE"


NESTED = """
    import drivetrain as dt
    from .parts import *

    @dt.pipeline
    def double(start: Numbers, times: int = 2) -> Numbers:
        first = Add(start, Make(count=times))
        return Add.options(id="Again")(first, start)
"""


def test_a_pipeline_in_a_pipeline(home: Home, flow: Pipe) -> None:
    body = """
        from .inner import double
        one = double(Make(count=count))
        two = double.options(id="second")(one, times=5)
        Sum([one, two])
    """
    result = run_pipeline(home, flow(body, inner=NESTED))
    assert list(states(result)) == [
        "Make", "double.Make", "double.Add", "double.Again", "second.Make", "second.Add", "second.Again", "Sum",
    ]  # fmt: skip
    assert value(result, "second.Again") == 21
    assert value(result, "Sum") == 29


FLAKY = """
    from pathlib import Path

    @dt.component
    def Flaky(*, tries: str, good_at: int) -> int:
        path = Path(tries)
        done = len(path.read_text()) if path.exists() else 0
        path.write_text("x" * (done + 1))
        if done + 1 < good_at:
            raise ConnectionError(f"try {done + 1}")
        return done + 1

    @dt.component
    def Part(*, number: int, mended: str) -> int:
        if number == 1 and not Path(mended).exists():
            raise ValueError("not yet")
        return number

    def transient(error):
        return "try" in str(error)
"""


@pytest.mark.parametrize(
    ("good_at", "options", "tries", "state"),
    [
        (3, "", 3, "COMPLETE"),
        (4, "", 3, "FAILED"),
        (3, ", retry_on=TimeoutError", 1, "FAILED"),
        (3, ", retry_on=OSError", 3, "COMPLETE"),  # a ConnectionError is one
        (3, ", retry_on='parts:transient'", 3, "COMPLETE"),
    ],
)
def test_retries_are_counted_and_the_last_failure_told(
    home: Home, flow: Pipe, tmp_path: Path, good_at: int, options: str, tries: int, state: str
) -> None:
    path = tmp_path / "tries"
    body = f"Flaky.options(retries=2, backoff=0.01{options})(tries={str(path)!r}, good_at={good_at})"
    result = run_pipeline(home, flow(body, FLAKY))
    assert result.nodes["Flaky"].state == state
    assert len(path.read_text()) == tries
    told = "retry 2 of 2" if state == "COMPLETE" else f"try {tries}"
    assert told in result.nodes["Flaky"].reason
    assert len(home.store.executions(component="parts:Flaky")) == tries


def test_resume_keeps_the_items_that_ended_well(home: Home, flow: Pipe, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    body = f"Total(values=dt.map_(lambda item: Part(number=item, mended={str(mended)!r}), over=[0, 1, 2]))"
    result = run_pipeline(home, flow(body, FLAKY))
    assert states(result) == {"Part[0]": "COMPLETE", "Part[1]": "FAILED", "Part[2]": "COMPLETE", "Total": "BLOCKED"}
    before = len(home.store.executions(component="parts:Part"))
    mended.touch()
    again = resume(home)
    assert again.run == result.run
    assert set(states(again).values()) == {"COMPLETE"}
    assert value(again, "Total") == 3
    assert len(home.store.executions(component="parts:Part")) == before + 1


def test_max_parallel_bounds_the_items_at_work(home: Home, flow: Pipe, tmp_path: Path) -> None:
    more = """
    import os, time
    from pathlib import Path

    @dt.component
    def Watch(numbers: Numbers, *, folder: str, item: int) -> int:
        mine = Path(folder, str(item))
        mine.touch()
        time.sleep(0.05)
        at_work = len(list(Path(folder).iterdir()))
        mine.unlink()
        return at_work
    """
    (tmp_path / "at").mkdir()
    body = f"""
        def one(item):
            return Watch(Make(count=item), folder={str(tmp_path / "at")!r}, item=item)
        Note(text="seen", more=None, number=Total(values=dt.map_(one, over=[1, 2, 3, 4, 5, 6], max_parallel=2)))
    """
    result = run_pipeline(home, flow(body, more))
    assert all(value(result, f"Watch[{i}]") in (1, 2) for i in range(6))


def test_order_without_data_and_secrets(
    home: Home, flow: Pipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    more = """
    @dt.component
    def Login(*, token: dt.Secret) -> int:
        if token.reveal() == "wrong-one":
            raise ValueError(f"refused: {token.reveal()}")
        return len(token.reveal())
    """
    body = """
        first = Make(count=1)
        Login.options(after=[first])(token=dt.secret("SHOP_TOKEN"))
    """
    result = run_pipeline(home, flow(body, more))
    assert result.nodes["Login"].state == "FAILED"
    assert "SHOP_TOKEN is not set" in result.nodes["Login"].reason
    monkeypatch.setenv("SHOP_TOKEN", "wrong-one")
    failed = run_pipeline(home, flow(body, more))
    assert failed.nodes["Login"].reason == "ValueError: refused: ***"
    monkeypatch.setenv("SHOP_TOKEN", "right-one-it-is")
    assert value(run_pipeline(home, flow(body, more)), "Login") == 15
    stored = (home.root / "metadata.db").read_bytes() + b"".join(path.read_bytes() for path in home.root.rglob("*-wal"))
    assert b"wrong-one" not in stored
    assert b"right-one" not in stored


HELD = """
    class Verdict(dt.Artifact):
        passed: bool = True
        summary: str = ""

    @dt.component(gates="numbers")
    def Held(numbers: Numbers, seen: list[Numbers]) -> Verdict:
        verdict = Verdict.new(summary=f"saw {len(seen)}")
        (verdict.content / "seen.txt").write_text(str(len(seen)))
        return verdict
"""


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("Make()\nwith dt.otherwise(): pass", "no dt.when right above"),
        ("with dt.when(Make().total + 1 > 2): pass", "cannot be used in arithmetic"),
        ("x = dt.map_(lambda i: Make(count=i), over=[1])\nAdd(x)", "takes one Numbers"),
        ("out = []\ndt.map_(lambda i: out.append(Make(count=i)), over=[1])\nAdd(out[0])", "made for each item of map"),
        ("seen = []\ndt.map_(lambda i: seen.append(i), over=[1])\nMake(count=seen[0])", "uses an item of map outside"),
        ("dt.map_(lambda i: Make(count=i), over=count)", "goes over a list"),
        ("dt.map_(lambda i: Make(count=i), over=[1], max_parallel=0)", "max_parallel is 0"),
        ("dt.map_(lambda i: 3, over=[1])", "returns 3"),
        ("n = Make()\nwith dt.on_exit() as run: Add(n)", "Make may not have run"),
        ("with dt.on_exit() as run: x = Make()\nAdd(x)", "makes on exit"),
        ("with dt.when(Make().total > 1):\n    with dt.on_exit() as run: pass", "inside a branch"),
        ("Add(dt.optional(Make()))", "may be skipped"),
        ("Note(text=Count(Make()))", "takes str"),
        (
            "n = Make()\ndef one(i): return Start(count=i), Add(n)\n"
            "x, _ = dt.unzip(dt.map_(one, over=[1, 2], max_parallel=1))\nHeld(n, x)",
            "no item of map could end, and max_parallel=1 lets no other begin: one waits for Held, which waits for",
        ),
        ("Make.options(retries=-1)()", "retries=-1 makes no sense"),
        ("Make.options(timeout=0)()", "timeout=0 makes no sense"),
        ("Make.options(retry_on=len)()", "retry_on=<built-in function len> makes no sense"),
        ("Make.options(memory='4 potatoes')()", "no amount of memory"),
        ("Make.options(env={'A B': 'x'})()", "is no name of an environment variable"),
        ("Note(text='%s' % Count(Make()))", "cannot be used in a text"),
        ("Note(text=str(count))", "cannot be used in a text"),
        ("for each in range(count): Make(count=each)", "write `dt.map_("),
        (
            "n = Make()\nwith dt.when(n.total > 'many'): pass",
            "is int, which cannot be compared with 'many', which is str",
        ),
        ("n = Make()\nwith dt.when(n.total == 'many'): pass", "is int, which cannot be compared with 'many'"),
        ("n = Make()\nwith dt.when(n.total > 1 & n.total < 5): pass", "`(a > 1) & (b < 2)`"),
        ("n = Make()\nwith dt.when(1 < n.total < 5): pass", "combine conditions by `&`"),
        ("Note(text=Count(Make()).text)", "is int, a value, which has no 'text'"),
        ("Add(Make)", "call it: `Make(...)`"),
        ("Make(2)", "it takes Make(count=...)"),
        ("dt.map_(lambda text: Make(count=text), over=['a', 'b'])", "takes int, and the item of map is str"),
        ("dt.map_(lambda n: Add(n), over=[Make()])", "goes over values, not the output"),
        ("dt.map_(lambda i: Make(count=i), over=[1], max_parallel='2')", "max_parallel is '2'"),
        ("Add(Make(), more=dt.latest('Numbers'))", "'Numbers' is no artifact type"),
        ("with dt.on_exit() as run: Note(text=run.status)", "did you mean 'state'?"),
        ("Make.options(retry=3)()", "there is no option 'retry'"),
        ("Make.options(retries=1.5)()", "give a whole number"),
        ("Make.options(cpus='500m')()", "cpus='500m' makes no sense"),
        ("Make.options(cache='no')()", "cache='no' makes no sense"),
        ("n = Make()\nAdd.options(after=n)(n)", "after=[output]"),
        ("n = Make()\ndt.when(n.total > 3)", "dt.when stands alone"),
        ("with dt.when(Make().total > 3): pass\ndt.otherwise()", "dt.otherwise stands alone"),
        ("Make()\ndt.on_exit()", "dt.on_exit stands alone"),
    ],
)
def test_what_is_wrong_is_told_when_it_is_built(flow: Pipe, body: str, says: str) -> None:
    with pytest.raises(BuildError) as caught:
        flow(body, HELD).build()
    assert says in str(caught.value)
    assert "pipeline.py:" in str(caught.value)


def test_a_gate_that_sees_a_loop_holds_its_items_back(home: Home, flow: Pipe) -> None:
    body = """
        n = Make()
        def one(item):
            first = Start.options(id="A")(count=item)
            return first, Add.options(id="B")(n)
        firsts, _ = dt.unzip(dt.map_(one, over=[1, 2]))
        Held(n, firsts)
    """
    result = run_pipeline(home, flow(body, HELD))
    assert set(states(result).values()) <= {"COMPLETE", "CACHED"}
    made = {name: next(iter(result.nodes[name].outputs.values()))[0] for name in ("B[0]", "Held")}
    assert made["Held"].created_at < made["B[0]"].created_at


def test_the_compiled_form_keeps_loops_and_options(flow: Pipe) -> None:
    body = """
        def one(item):
            with dt.when(item > 1):
                return Make.options(timeout=60, memory="4GiB", env={"A": "1"})(count=item)
        Sum(dt.map_(one, over=[1, 2], max_parallel=3))
        with dt.on_exit() as run:
            Note.options(priority=3)(text=run.state)
    """
    built = flow(body).build()
    text = built.to_json()
    assert Pipeline.from_json(text) == built
    assert built["Make"].options.memory == 4 * 2**30
    assert built.loop("map").parallel == 3
    assert built.scope("Make") == ("map",)
    assert built.upstream("Sum") == ("Make",)
