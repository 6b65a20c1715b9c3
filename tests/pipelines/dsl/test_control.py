"""Branches and loops as they are built: what is wrong, gates over loops, the IR."""

from __future__ import annotations

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines import Home, Pipeline, run_pipeline
from drivetrain.tests.pipelines.flows import Pipe, flows, states


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


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
        (
            "dt.map_(lambda i: dt.map_(lambda j: Make(count=j), over=[1]), over=[1])",
            "a list, the output 'numbers' of Make of every item of a loop inside: lists of lists are not gathered",
        ),
        (
            "dt.map_(lambda i: (Note(text='n'), dt.map_(lambda j: Count(Make(count=j)), over=[1])), over=[1])",
            "a list, every Count of every item of a loop inside",
        ),
        (
            "out = []\ndef one(i): out.append(dt.map_(lambda j: Make(count=j), over=[1], id='inner'))\n"
            "dt.map_(one, over=[1])\nSum(out[0])",
            "give them to a component right around inner",
        ),
        ("dt.map_(lambda n: Add(n), over=dt.map_(lambda i: Make(count=i), over=[1]))", "over values, not artifacts"),
        ("n = Make()\nwith dt.on_exit() as run: Add(n)", "Make may not have run"),
        ("with dt.on_exit() as run: x = Make()\nAdd(x)", "makes on exit"),
        ("with dt.when(Make().total > 1):\n    with dt.on_exit() as run: pass", "inside a branch"),
        ("Add(dt.optional(Make()))", "may be skipped"),
        ("Note(text=Count(Make()))", "takes str"),
        (
            "n = Make()\ndef one(i): return Start(count=i), Add(n)\n"
            "x, _ = dt.loops.unzip(dt.map_(one, over=[1, 2], max_parallel=1))\nHeld(n, x)",
            "no item of map could end, and max_parallel=1 lets no other begin: one waits for Held, which waits for",
        ),
        ("Make.options(retries=-1)()", "retries=-1 makes no sense"),
        ("Make.options(timeout=0)()", "timeout=0 makes no sense"),
        ("Make.options(timeout=float('inf'))()", "timeout=inf makes no sense"),
        ("Make.options(backoff_max=float('inf'))()", "backoff_max=inf makes no sense"),
        ("Make.options(retry_on=len)()", "retry_on=<built-in function len> makes no sense"),
        ("Make.options(memory='4 potatoes')()", "not an amount of memory"),
        ("Make.options(env={'A B': 'x'})()", "is not a valid name of an environment variable"),
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
        ("Add(Make(), more=dt.latest('Numbers'))", "'Numbers' is not an artifact type"),
        ("with dt.on_exit() as run: Note(text=run.status)", "did you mean 'state'?"),
        ("Make.options(retry=3)()", "there is no option 'retry'"),
        ("Make.options(retries=1.5)()", "give a whole number"),
        ("Make.options(env={'A': 'a\\0b'})()", r"the environment variable A is 'a\x00b'"),
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
        firsts, _ = dt.loops.unzip(dt.map_(one, over=[1, 2]))
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
