"""Exits, pipelines in pipelines, retries, resuming, order without data."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, resume, run_pipeline
from drivetrain.tests.pipelines.flows import Pipe, flows, states, value


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


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
    assert str(value(bad, "Alarm")).endswith("ValueError: told to fail None None")
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
        if token.reveal().startswith("wrong"):
            raise ValueError(f"refused: {token.reveal()}")
        return len(token.reveal())
    """
    body = """
        first = Make(count=1)
        Login.options(after=[first])(token=dt.secret("SHOP_TOKEN"))
    """
    with pytest.raises(InputError, match=r"SHOP_TOKEN \(for Login\) is not set"):
        run_pipeline(home, flow(body, more))
    monkeypatch.setenv("SHOP_TOKEN", "wrong-one")
    failed = run_pipeline(home, flow(body, more))
    assert failed.nodes["Login"].reason.endswith("ValueError: refused: ***")
    monkeypatch.setenv("SHOP_TOKEN", "right-one-it-is")
    assert value(run_pipeline(home, flow(body, more)), "Login") == 15
    stored = (home.root / "metadata.db").read_bytes() + b"".join(path.read_bytes() for path in home.root.rglob("*-wal"))
    assert b"wrong-one" not in stored
    assert b"right-one" not in stored
