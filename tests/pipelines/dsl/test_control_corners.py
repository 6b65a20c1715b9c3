"""Branches, loops, exits and options where they meet: what holds together, and what is refused at the user's line."""

from __future__ import annotations

import pytest
from drivetrain.console.session import view
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline, spin
from drivetrain.pipelines.launcher.runs import new_run
from drivetrain.tests.pipelines.flows import Pipe, flows, states, value


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


INNER = """
    import drivetrain as dt
    from .parts import *

    @dt.pipeline
    def chosen(start: Numbers, sizes: list[int], flag: bool = True, extra: Numbers | None = None) -> Numbers:
        def one(size):
            with dt.when(size > 1):
                with dt.when(flag):
                    large = Make.options(id="Large")(count=size)
                with dt.otherwise(size > 2):
                    other = Make.options(id="Other")(count=10)
                with dt.otherwise():
                    rest = Make.options(id="Rest")(count=100)
                return Add(dt.one_of(large, other, rest), dt.optional(large))
        every = Sum(dt.map_(one, over=sizes, max_parallel=2))
        with dt.on_exit() as run:
            Note.options(id="Leave")(text=run.state, number=dt.optional(start.total))
        return Add.options(id="All")(every, None if extra is None else dt.optional(extra))
"""
OUTER = """
    from .inner import chosen
    made = Make(count=count)
    with dt.when(made.total > 5):
        rare = Make.options(id="Rare")(count=1000)
    one = chosen(made, [0, 1, 2, 3], flag=made.total > 2, extra=rare)
    two = chosen.options(id="second")(made, Numbered(many=4), flag=False)
    Sum.options(id="Both")([one, two])
"""


@pytest.mark.parametrize(
    ("runner", "count", "first", "both"),
    [("inline", 1, 110, 220), ("inline", 3, 10, 120), ("inline", 9, 1010, 1120), ("process", 9, 1010, 1120)],
)
def test_branches_in_loops_in_branches_in_pipelines(
    home: Home, flow: Pipe, runner: str, count: int, first: int, both: int
) -> None:
    """One flag is a condition of the run, the other is known when the pipeline is built."""
    result = run_pipeline(home, flow(OUTER, inner=INNER), {"count": count}, RunOptions(runner=runner))
    assert result.state == "COMPLETE"
    assert (value(result, "chosen.All"), value(result, "Both")) == (first, both)
    assert value(result, "chosen.Leave") == f"COMPLETE None {count}"
    found = states(result)
    assert found["Rare"] == ("COMPLETE" if count > 5 else "SKIPPED")
    assert [found[f"second.{node}[2]"] for node in ("Large", "Other")] == ["SKIPPED", "SKIPPED"]
    assert found["chosen.Add[0]"] == "SKIPPED"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("dt.map_(lambda token: Login(token=token), over=[dt.secret('A'), dt.secret('B')])", "goes over secrets"),
        ("dt.map_(lambda each: Login(token=each['t']), over=[{'t': dt.secret('A')}])", "goes over secrets"),
        ("dt.map_(lambda each: Lines(data=each), over=[dt.files('a'), dt.files('b')])", "goes over files"),
        (
            "some = Numbered(many=2)\nwith dt.on_exit() as run:\n    dt.map_(lambda each: Make(count=each), over=some)",
            "map goes over what Numbered makes, however the run ends",
        ),
        (
            "with dt.when(Make().total > 1):\n    pass\n"
            "def one(each):\n    with dt.otherwise():\n        return Make.options(id='B')(count=each)\n"
            "dt.map_(one, over=[1])",
            "no dt.when right above",
        ),
        (
            "from .inner import begins\nwith dt.when(Make().total > 1):\n    pass\nbegins()",
            "no dt.when right above",
        ),
        (
            "with dt.when(Make().total > 1): pass\nwith dt.on_exit() as run:\n    with dt.otherwise(): Make()",
            "no dt.when right above",
        ),
        ("Make.options(retries=1, retry_on=['ValueError', 'parts:transient'])()", "which decides alone"),
        ("Make.options(retries=1, retry_on='parts:transiant')()", "parts does not define 'transiant'"),
        ("Make.options(retries=1, retry_on='prats:transient')()", "there is no module 'prats'"),
    ],
)
def test_what_no_run_could_keep_is_told_when_it_is_built(flow: Pipe, body: str, says: str) -> None:
    inner = """
    import drivetrain as dt
    from .parts import *

    @dt.pipeline
    def begins() -> None:
        with dt.otherwise():
            Make.options(id="Inner")()
    """
    with pytest.raises(BuildError) as caught:
        flow(body, inner=inner).build()
    assert says in str(caught.value)
    assert ".py:" in str(caught.value)


def test_a_condition_of_many_terms_is_one_operation(home: Home, flow: Pipe) -> None:
    chain = "condition = made.total == 0\nfor each in range(1, 3000): condition = condition | (made.total == each)"
    body = f"made = Make()\n{chain}\nwith dt.when(condition): Make.options(id='Chosen')(count=7)"
    result = run_pipeline(home, flow(body))
    assert result.state == "COMPLETE"
    assert states(result)["Chosen"] == "COMPLETE"
    (choice,) = (node for node in flow(body).build().nodes if node.id == "Chosen")
    assert len(choice.conditions[0]["$op"]) == 3001


@pytest.mark.parametrize("grow", ["~(condition | flag)", "(condition | flag) & flag", "condition == flag"])
def test_a_condition_that_nests_without_end_is_refused(flow: Pipe, grow: str) -> None:
    body = f"flag = condition = Make().total > 0\nfor _ in range(3000): condition = {grow}"
    with pytest.raises(BuildError, match=r"\.py:\d+: a condition nests too many operations in each other\n.*one chain"):
        flow(body).build()


@pytest.mark.parametrize("parameter", ["token: dt.Secret", "token: dt.Secret = dt.secret('A')", "some: Numbers | None"])
def test_a_parameter_that_no_shell_could_give(flow: Pipe, parameter: str) -> None:
    function = flow("Make()")
    (function.project / "pipeline.py").write_text(
        (function.project / "pipeline.py").read_text().replace("count: int = 3", parameter)
    )
    with pytest.raises(BuildError, match=r"of the pipeline is .*, which is not JSON"):
        load_pipeline(function.project).build()


def test_options_are_added_to_those_from_before(home: Home, flow: Pipe) -> None:
    body = """
        Patient = Make.options(retries=3, backoff=0.5, timeout=60, cache=False, env={"A": "1"}, retry_on=OSError)
        Patient.options(id="Second", retries=2)()
        Patient.options(id="Third", timeout=None, cache=True, env=None, retry_on=())()
        Patient.options(id="Fourth")()
        Make()
    """
    built = flow(body).build()
    second, third, fourth = (built[name] for name in ("Second", "Third", "Fourth"))
    assert (second.options.retries, second.options.backoff, second.options.timeout, second.cache) == (2, 0.5, 60, False)
    assert (second.options.env, second.options.retry_on) == ((("A", "1"),), ("OSError",))
    assert (third.options.retries, third.options.timeout, third.cache) == (3, None, True)
    assert (third.options.env, third.options.retry_on) == ((), ())
    assert fourth.options.retries == 3
    assert built["Make"].options == type(second.options)()


def test_on_exit_goes_over_what_failed(home: Home, flow: Pipe) -> None:
    body = """
        dt.map_(lambda each: Fails(when=each > 1), over=[1, 2, 3])
        with dt.on_exit() as run:
            dt.map_(lambda name: Note(text=name), over=run.failed, max_parallel=1)
    """
    function = flow(body)
    run = new_run(home, function.build(), function.project, {"count": 3}, RunOptions())
    assert {node.id: node.state for node in view(home, run)} == {  # while it is at work
        "Fails[0]": "WAITING", "Fails[1]": "WAITING", "Fails[2]": "WAITING", "Note": "WAITING"
    }  # fmt: skip
    with pytest.raises(InputError, match=f"how run {run.id} ends is not known yet"):
        spin(home, run, function, "Note[0]")
    result = run_pipeline(home, function)
    assert result.state == "FAILED"
    assert [value(result, f"Note[{place}]") for place in (0, 1)] == ["Fails[1] None None", "Fails[2] None None"]


def test_a_pipeline_within_another_looks_back_at_its_own_nodes(home: Home, flow: Pipe) -> None:
    """And where it has none of that name, at one of those around it."""
    inner = """
    import drivetrain as dt
    from .parts import *

    @dt.pipeline
    def back(count: int) -> None:
        Compare(Make(count=count), dt.latest(Numbers, node="Make"))
        Compare.options(id="Around")(Make.options(id="Again")(count=0), dt.latest(Numbers, node="Start"))
    """
    body = """
        from .inner import back
        Make(count=100)
        Make.options(id="Start")(count=50)
        back(count=count)
    """
    run_pipeline(home, flow(body, inner=inner), {"count": 1})
    result = run_pipeline(home, flow(body, inner=inner), {"count": 2})
    assert (value(result, "back.Compare"), value(result, "back.Around")) == ("1 -> 2", "50 -> 0")
    with pytest.raises(BuildError, match=r"back\.Compare: there is no node 'Mike' whose Numbers could be taken"):
        flow(body, inner=inner.replace('node="Make"', 'node="Mike"')).build()


def test_of_several_outputs_each_is_waited_for(flow: Pipe) -> None:
    body = """
        pairs = dt.map_(lambda each: (Count(Make(count=each)), Make.options(id="Other")(count=each)), over=[1, 2])
        both = Pair(count=3)
        Note.options(after=[pairs, both, both])(text="last")
    """
    assert flow(body).build()["Note"].after == ("Count", "Other", "Pair")
