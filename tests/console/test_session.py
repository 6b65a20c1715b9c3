"""A past run in a notebook: `dt.open`, its nodes, its artifacts, what they show."""

import html
import re
from collections.abc import Callable
from pathlib import Path

import drivetrain as dt
import pytest
from click.testing import Result
from drivetrain.console.session import RunView
from drivetrain.metadata import Evaluation
from drivetrain.pipelines import Home, load_pipeline, open_run, run_pipeline

Command = Callable[..., Result]


@pytest.fixture
def opened(shop: Path, drivetrain: Command) -> RunView:
    assert drivetrain("run", "shop").exit_code == 0
    return dt.open()


def page(markup: str) -> str:
    """The documents inside the frames."""
    return html.unescape(" ".join(re.findall(r'srcdoc="([^"]*)"', markup)))


def test_a_run_opens_as_a_value(opened: RunView, tmp_path: Path) -> None:
    assert opened.state == "COMPLETE"
    assert opened.pipeline == "shop"
    assert opened.parameters["rows"] == 3
    assert list(opened.nodes) == [node.id for node in opened] == ["Make", "Guard", "Train", "Judge", "Push"]
    assert opened.finished is not None
    assert opened.finished > opened.started
    assert dt.open(opened.id, root=tmp_path / ".drivetrain").to_json() == opened.to_json()


def test_an_artifact_is_found_by_node(opened: RunView) -> None:
    judged = opened.artifact("Judge")
    assert isinstance(judged, Evaluation)
    assert judged.blessed
    assert opened["Judge"]["evaluation"].uri == judged.uri
    assert (opened.artifact("Make", "examples").content / "rows").read_text() == "3"


def test_what_is_not_there_is_named_with_what_is(opened: RunView) -> None:
    with pytest.raises(dt.InputError, match="did you mean 'Judge'"):
        opened["Jugde"]
    with pytest.raises(dt.InputError, match=r"(?s)no output 'model'.*it has evaluation"):
        opened.artifact("Judge", "model")
    with pytest.raises(dt.InputError, match="there is no run 'nonsense'"):
        dt.open("nonsense")
    with pytest.raises(dt.InputError, match="there are no runs in"):
        dt.open(root="nowhere")


def test_a_run_a_node_and_an_artifact_show_themselves(opened: RunView) -> None:
    run = page(opened._repr_html_())
    assert "<h1>shop" in run
    assert all(node in run for node in opened.nodes)
    assert "first run" in run
    assert "<p>judged</p>" in page(opened.artifact("Judge")._repr_html_())
    node = page(opened["Judge"]._repr_html_())
    assert "evaluation" in node
    assert str(opened.artifact("Judge").uri) in node
    assert "<p>judged</p>" in node


def test_a_failed_run_opens_with_its_traceback_escaped(shop: Path, drivetrain: Command) -> None:
    drivetrain("run", "shop", "--param", "fail=crash")
    opened = dt.open()
    assert opened.state == "FAILED"
    assert "ValueError: boom" in str(opened["Train"].error)
    assert opened["Judge"].state == "BLOCKED"
    assert "ValueError: boom" in page(opened["Train"]._repr_html_())
    with pytest.raises(dt.InputError, match=r"(?s)has no outputs.*ValueError"):
        opened.artifact("Train")


def test_a_run_is_drawn_with_its_states(shop: Path, drivetrain: Command, tmp_path: Path) -> None:
    assert drivetrain("run", "shop", "--param", "fail=crash").exit_code != 0
    shown = drivetrain("show", "--html", "run.html")
    assert shown.stderr == "wrote run.html\n"
    assert shown.exit_code == 0
    written = (tmp_path / "run.html").read_text("utf-8")
    assert written == dt.open().to_html()
    (drawn,) = re.findall(r"<svg.*?</svg>", written, re.S)
    looks = dict(re.findall(r'<g class="node([^"]*)"><title>(\w+):', drawn))
    assert {name: look.split() for look, name in looks.items()} == {
        "Guard": ["good"],  # the last of those that look the same
        "Train": ["bad"],
        "Judge": ["warn"],
        "Push": ["if", "warn"],
    }
    assert drivetrain("show", "--html", ".").exit_code == 2
    nowhere = drivetrain("show", "--html", "nowhere/run.html")
    assert (nowhere.exit_code, "nowhere/run.html cannot be written" in nowhere.stderr) == (2, True)


def test_a_run_and_its_nodes_are_one_line(opened: RunView, drivetrain: Command, tmp_path: Path) -> None:
    drivetrain("run", "shop")
    run = dt.open()
    assert re.fullmatch(rf"RunView\({run.id}, shop, COMPLETE in \d+\.\d\d s, 5 nodes\)", repr(run))
    assert re.fullmatch(r"NodeView\(Make, CACHED in \d+\.\d\d s, examples\)", repr(run["Make"]))
    home = Home(tmp_path / ".drivetrain")
    assert repr(open_run(home, run.id)) == f"Run({run.id}, shop, COMPLETE)"
    result = run_pipeline(home, load_pipeline(tmp_path / "shop"))
    assert repr(result) == f"RunResult({result.run}, COMPLETE, 5 nodes)"
    home.close()
