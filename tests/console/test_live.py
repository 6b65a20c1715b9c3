"""What a running run looks like: meters, the outline, lines, the tree."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from drivetrain.console.live import LineProgress, Meter, TreeProgress, span, watch
from drivetrain.console.outline import outline
from drivetrain.metadata import ContextRecord
from drivetrain.pipelines import NodeResult, Observer, Pipeline, Run, RunOptions
from drivetrain.pipelines.ir.ir import Edge, Node
from drivetrain.pipelines.launcher.states import EndState
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console


def node(name: str, *upstream: str, after: tuple[str, ...] = ()) -> Node:
    inputs = tuple((up.lower(), (Edge(up, "out"),)) for up in upstream)
    return Node(name, f"m:{name}", None, inputs, (), (("out", "Model"),), after=after)


def demo() -> Run:
    nodes = (node("A"), node("B", "A"), node("C", "A"), node("D", "C", after=("B",)), node("Alone"))
    now = datetime(2026, 11, 21, tzinfo=UTC)
    context = ContextRecord(1, "u", "run", "20261121-093000-1a2b", {"state": "RUNNING"}, 1, now, now)
    return Run(context.name, Pipeline("demo", (), nodes), Path("demo"), {}, RunOptions(), context)


def test_outline_draws_each_node_once_below_the_last_it_waits_for() -> None:
    assert list(outline(demo().pipeline)) == [("", "A"), ("├ ", "B"), ("└ ", "C"), ("  └ ", "D"), ("", "Alone")]


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.sets(st.integers(0, max(i - 1, 0))) for i in range(n)])))
def test_outline_holds_every_node_after_all_it_is_drawn_below(ups: tuple[set[int], ...]) -> None:
    nodes = [node(f"N{i}", *(f"N{up}" for up in sorted(above) if up < i)) for i, above in enumerate(ups)]
    drawn = [name for _, name in outline(Pipeline("p", (), tuple(nodes)))]
    assert sorted(drawn) == sorted(n.id for n in nodes)
    for each in nodes:
        if each.upstream:
            assert drawn.index(max(each.upstream, key=lambda up: int(up[1:]))) < drawn.index(each.id)


def test_a_meter_gives_rate_and_what_is_left_over_the_last_seconds() -> None:
    meter = Meter()
    assert meter.rate is None
    for second in range(30):
        # 100 a second at first, 300 a second in the last ten seconds that count.
        done = 100 * min(second, 15) + 300 * max(second - 15, 0)
        meter.update(done, 10_000, "rows", float(second))
    assert meter.rate == pytest.approx(300)
    assert meter.left == pytest.approx((10_000 - 5_700) / 300)
    assert str(meter) == "5,700 of 10,000 (57%) rows, 300 rows/s, 14.3 s left"


def test_a_meter_of_slow_work_does_not_say_that_it_stands_still() -> None:
    meter = Meter()
    meter.update(4, 12, "trials", 0.0)
    meter.update(5, 12, "trials", 8.0)
    assert str(meter) == "5 of 12 (42%) trials, 0.12 trials/s, 56.0 s left"


def test_a_meter_starts_anew_with_a_new_unit_or_a_smaller_count() -> None:
    meter = Meter()
    meter.update(0, None, "rows", 0.0)
    meter.update(50, None, "rows", 1.0)
    assert str(meter) == "50 rows, 50 rows/s"
    assert meter.left is None
    meter.update(10, 20, "examples", 2.0)
    assert meter.rate is None
    assert str(meter) == "10 of 20 (50%) examples"
    meter.update(5, 20, "examples", 3.0)
    assert meter.rate is None
    meter.update(5, 20, "examples", 3.0)  # no time has passed
    assert meter.rate is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.00 s"), (0.4216, "0.42 s"), (9.999, "10.0 s"), (12.34, "12.3 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_a_duration_is_said_in_two_units_at_most(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_lines_say_how_nodes_ended_and_how_far_long_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = itertools.count(step=7)
    # The module's alone: what other threads wait for goes by the same function.
    monkeypatch.setattr("drivetrain.console.live.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    monkeypatch.setattr("drivetrain.console.live._QUIET", 600.0)
    lines = LineProgress(demo(), said.append)
    lines.started("A")
    lines.progress("A", 70, 700, "rows")
    lines.progress("A", 140, 700, "rows")
    lines.note("A", "reading")
    lines.note("A", "reading")
    lines.ended(NodeResult("A", EndState.FAILED, 61.0, "no file\n  fix: give one"))
    lines.ended(NodeResult("B", EndState.BLOCKED, 0.0, "A did not end well"))
    assert said == [
        "demo, run 20261121-093000-1a2b",
        "A      running   140 of 700 (20%) rows, 10 rows/s, 56.0 s left",
        "A      note      reading",
        "A      failed    1 min 1 s  no file",
        "B      blocked     0.00 s  A did not end well",
    ]


def shown(tree: TreeProgress) -> list[list[str]]:
    """The words of each line."""
    console = Console(width=100, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(tree)
    return [line.split() for line in captured.get().splitlines()]


def test_the_tree_shows_states_progress_and_reasons() -> None:
    tree = TreeProgress(demo())
    tree.started("A")
    tree.ended(NodeResult("A", EndState.CACHED, 0.25, "same work as run [x]"))
    tree.started("B")
    tree.progress("B", 5, 10, "steps")
    tree.note("B", "warm [up]")
    console = Console(width=100, record=True, file=None, force_terminal=True)
    with console.capture() as captured:
        console.print(tree)
    text = captured.get()
    lines = shown(tree)
    assert "\x1b[" in text
    assert lines[0] == ["demo", "20261121-093000-1a2b"]
    assert lines[1] == ["A", "cached", "0.25", "s", "same", "work", "as", "run", "[x]"]
    assert lines[2][:3] == ["├", "B", "running"]
    assert " ".join(lines[2]).endswith("5 of 10 (50%) steps, warm [up]")
    assert lines[3] == ["└", "C", "waiting"]


def test_a_note_of_a_node_that_was_not_started_is_shown_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivetrain.console.live._QUIET", 600.0)
    said: list[str] = []
    lines, tree = LineProgress(demo(), said.append), TreeProgress(demo())
    observer: Observer
    for observer in (lines, tree):
        observer.note("A", "logs are incomplete")
        observer.note("B", "waits for a pod")
        observer.started("B")
        observer.ended(NodeResult("B", EndState.COMPLETE, 2.0, "first run"))
    lines.note("A", "logs are incomplete")
    tree.progress("Alone", 3, None, "rows")
    assert said[1:] == [
        "A      note      logs are incomplete",
        "B      note      waits for a pod",
        "B      complete    2.00 s  first run",
    ]
    assert [" ".join(line) for line in shown(tree)[1:]] == [
        "A waiting logs are incomplete",
        "├ B complete 2.00 s first run",
        "└ C waiting",
        "└ D waiting",
        "Alone waiting 3 rows",
    ]


def test_a_note_of_an_item_that_was_not_started_leaves_the_others_be() -> None:
    tree = TreeProgress(demo())
    tree.note("A[1]", "waits for a pod")
    tree.ended(NodeResult("A[0]", EndState.COMPLETE, 2.0, "first run"))
    assert shown(tree)[1] == ["A", "waiting", "1", "complete,", "1", "waiting"]
    tree.started("A[1]")
    assert shown(tree)[1][:2] == ["A", "running"]


def test_watching_draws_a_tree_in_a_terminal_lines_elsewhere_and_nothing_for_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with watch(None) as nobody:
        assert nobody is None
    with (tmp_path / "log").open("w") as log, watch(Console(file=log)) as begin:
        assert begin is not None
        begin(demo()).ended(NodeResult("A", EndState.COMPLETE, 1.0, "first run"))
    assert capsys.readouterr().out.splitlines()[1] == "A      complete    1.00 s  first run"
    with (tmp_path / "tty").open("w") as tty, watch(Console(file=tty, force_terminal=True)) as begin:
        assert begin is not None
        observer = begin(demo())
        observer.started("A")
        observer.ended(NodeResult("A", EndState.COMPLETE, 1.0, "first run"))
    assert isinstance(observer, TreeProgress)
    assert "first run" in (tmp_path / "tty").read_text()
    monkeypatch.setenv("JPY_PARENT_PID", "7")  # as in what `!` runs in a notebook
    with (tmp_path / "cell").open("w") as tty, watch(Console(file=tty, force_terminal=True)) as begin:
        assert begin is not None
        begin(demo()).ended(NodeResult("A", EndState.COMPLETE, 1.0, "first run"))
    assert "\x1b" not in (tmp_path / "cell").read_text()
