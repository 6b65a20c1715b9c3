"""`show`: a past run as the store has it."""

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]
Runs = tuple[Json, Json]


def test_show_says_of_a_past_run_what_run_said(two_runs: Runs, drivetrain: Command, last_json: Read) -> None:
    for run in two_runs:
        shown = last_json(drivetrain("show", run["run"], "--json"))
        assert shown["run"] == run["run"]
        assert shown["state"] == run["state"]
        for name, node in run["nodes"].items():
            assert shown["nodes"][name] == node
    newest = drivetrain("show").stdout
    assert two_runs[1]["run"] in newest
    assert two_runs[1]["nodes"]["Train"]["outputs"]["model"][0]["uri"] in newest.replace("\n", "")
    # A beginning of the id is enough where it is unique.
    assert last_json(drivetrain("show", two_runs[0]["run"][:-1], "--json"))["run"] == two_runs[0]["run"]


def test_show_quotes_a_veto_again(shop: Path, drivetrain: Command) -> None:
    drivetrain("run", "shop", "--param", "rows=11")
    assert "row 17 of train: carrier=ZZ_NEW" in drivetrain("show").stdout


LOOPS = """
    import drivetrain as dt

    @dt.component
    def Part(*, number: int) -> int:
        if number in (3, 5):
            raise ValueError(f"no {number}")
        return number

    @dt.component
    def Total(*, values: list[int]) -> int:
        return sum(values)

    @dt.pipeline
    def loops(many: list[int]) -> None:
        Total(values=dt.map_(lambda item: Part(number=item), over=many))
"""


def test_many_items_share_a_line_and_those_that_failed_have_their_own(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("loops", pipeline=LOOPS)
    monkeypatch.chdir(folder.parent)
    result = drivetrain("run", "loops", "--param", f"many={list(range(20))}")
    assert result.exit_code == 2
    table = result.stdout[result.stdout.index("reason") :]
    lines = [line.split() for line in table.splitlines()[1:5]]
    named = [[word for word in line if word != "└"][:2] for line in lines]
    assert named == [["Part[20]", "FAILED"], ["Part[3]", "FAILED"], ["Part[5]", "FAILED"], ["Total", "BLOCKED"]]
    assert "18 complete, 2 failed" in table
    shown = last_json(drivetrain("show", "--json"))
    assert shown["nodes"]["Part[3]"]["state"] == "FAILED"
    said = " ".join(drivetrain("show").stdout.split())
    assert "Part[20].value Value 18 of them, which --json lists" in said
    assert list(shown["nodes"])[:3] == ["Part[0]", "Part[1]", "Part[2]"]
    assert drivetrain("why", "Part[4]").exit_code == 0
    assert drivetrain("lineage", "Part[4]").exit_code == 0
    empty = drivetrain("run", "loops", "--param", "many=[]")
    assert "there are no items" in empty.stdout
    few = drivetrain("run", "loops", "--param", "many=[1,2]")
    assert "Part[1]" in few.stdout


ROUTES = """
    import json
    import drivetrain as dt
    from drivetrain.metadata import Summary, summarize

    class Routes(dt.Artifact):
        worst: str = ""

    @summarize.register
    def worst_first(routes: Routes) -> Summary:
        delays = json.loads((routes.content / "routes.json").read_text())
        rows = tuple((name, f"{minutes:.1f}") for name, minutes in delays.items())
        return Summary(f"{routes.worst} [is] worst\\nof {len(rows)} routes", ("route", "minutes"), rows, delays)

    class Mute(Routes):
        pass

    @summarize.register
    def fails(mute: Mute) -> str:
        return str(1 / 0)

    class Odd(dt.Artifact):
        pass

    @summarize.register
    def odd_numbers(odd: Odd) -> Summary:
        return Summary("odd", numbers={"share": float("nan")})

    @dt.component
    def Worst(*, delays: dict[str, float]) -> Routes:
        routes = Routes.new(worst=max(delays, key=delays.get))
        (routes.content / "routes.json").write_text(json.dumps(delays))
        (routes.extra / "report.html").write_text("<p>all routes</p>")
        return routes

    @dt.component
    def Silent(*, delays: dict[str, float]) -> Mute:
        mute = Mute.new()
        (mute.content / "routes.json").write_text("{}")
        return mute

    @dt.component
    def Strange() -> Odd:
        return Odd.new()

    @dt.pipeline
    def routes() -> None:
        Strange()
        Worst(delays={"SFO": 12.25, "ORD": 31.0})
        Silent(delays={})
"""
NARROW = """
from drivetrain.console.session import open
from drivetrain.console.show import show_summary
from rich.console import Console

node = open()["Worst"]
show_summary(Console(width=10), node, "routes", "/nowhere")
"""


def test_an_artifact_of_a_users_type_says_what_is_shown_of_it(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("routes", pipeline=ROUTES)
    monkeypatch.chdir(folder.parent)
    ran = drivetrain("run", "routes")
    assert ran.exit_code == 0
    shutil.rmtree(folder)  # what was recorded is shown, whatever became of the code

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

    for printed in (ran.stdout, python("-m", "drivetrain", "show")):
        lines = [line.rstrip() for line in printed.splitlines()]
        table = lines.index("route  minutes")
        assert lines[table + 1 : table + 3] == ["SFO       12.2", "ORD       31.0"]
        text = lines.index("Worst: ORD [is] worst")
        assert lines[text + 1] == "of 2 routes"
        assert lines[text + 2].startswith("  report: ")
        assert Path(lines[text + 2].removeprefix("  report: ")).read_text() == "<p>all routes</p>"
        assert "Silent: no summary: ZeroDivisionError: division by zero" in lines
        assert any(line.startswith("Strange: no summary: InputError: ") for line in lines)
    narrow = python("-c", NARROW)
    assert "SFO" in narrow
    assert "minutes" not in narrow


def test_a_summary_stands_in_notebooks_and_on_pages(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project("routes", pipeline=ROUTES).parent)
    assert drivetrain("run", "routes").exit_code == 0
    node = dt.open()["Worst"]
    assert node.summary("routes").headline == "ORD [is] worst"
    assert "<td>SFO</td><td>12.2</td>" in node.summary("routes")._repr_html_()
    assert "ORD [is] worst" in dt.open().to_html()
    assert "ORD [is] worst" in html.unescape(node._repr_html_())


JUDGE = """
    import drivetrain as dt
    from drivetrain.metadata import Evaluation

    @dt.component
    def Judge(*, auc: float) -> Evaluation:
        evaluation = Evaluation.new(blessed=auc > 0.7, metrics={"auc": auc, "<b>": 1.0})
        (evaluation.content / "all").write_text(str(auc))
        return evaluation

    @dt.pipeline
    def judging(auc: float = 0.5) -> None:
        Judge(auc=auc)
"""


def test_a_page_shows_the_metrics_of_a_node_over_its_runs(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(project("judging", pipeline=JUDGE).parent)
    runs = []
    for auc in (0.625, 0.75, 0.6875):
        runs.append(last_json(drivetrain("run", "judging", "--param", f"auc={auc}", "--json"))["run"])
    pages = []
    for number, run in enumerate(runs):
        assert drivetrain("show", run, "--html", str(tmp_path / f"{number}.html")).exit_code == 0
        pages.append((tmp_path / f"{number}-artifacts" / "Judge.evaluation.html").read_text())
    first, second, third = pages
    assert "Over runs" not in first  # nothing to compare with
    assert re.findall(r'<td class="n">(0\.\d+)</td>', second) == ["0.750", "0.625"]  # not what came after it
    assert re.findall(r'<td class="n">(0\.\d+)</td>', third) == ["0.6875", "0.7500", "0.6250"]
    assert re.findall(r'badge (?:good|bad)">(.*?)<', third) == ["not blessed", "blessed", "not blessed"]
    assert "&lt;b&gt;" in third
    assert "<b>1" not in third


def test_diff_compares_the_numbers_of_summaries(
    project: Callable[..., Path], drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for minutes in (31.0, 32.5):
        folder = project("routes", pipeline=ROUTES.replace("31.0", str(minutes)))
        monkeypatch.chdir(folder.parent)
        runs.append(last_json(drivetrain("run", "routes", "--json"))["run"])
    answer = last_json(drivetrain("diff", *runs, "--json"))["nodes"]
    assert answer["Worst"]["metrics"] == {"ORD": [31.0, 32.5]}
    assert "metrics" not in answer["Silent"]


def seconds(answer: Json) -> dict[str, float]:
    return {name: node["seconds"] for name, node in answer["nodes"].items()}


@pytest.mark.parametrize("fail", ["", "crash", "user"])
def test_run_and_show_agree_on_the_seconds(shop: Path, drivetrain: Command, last_json: Read, fail: str) -> None:
    """Of nodes that ran, were reused, failed, were blocked, and of the run."""
    for options in ((), (), ("--no-cache",)):
        answer = last_json(drivetrain("run", "shop", "-p", f"fail={fail}", "-p", "seconds=0.05", "--json", *options))
        assert seconds(answer) == seconds(last_json(drivetrain("show", "--json")))
        assert all(took > 0 for name, took in seconds(answer).items() if answer["nodes"][name]["state"] != "BLOCKED")
    table = drivetrain("run", "shop", "-p", f"fail={fail}").stdout
    shown = drivetrain("show").stdout
    (end,) = (line for line in table.splitlines() if line.startswith("shop, run ") and ": " in line)
    assert re.search(r" in \d+\.\d\d s$", end)
    assert end in shown.splitlines()
    rows = [line.split()[-3:] for line in table.splitlines() if " CACHED " in line]
    assert rows == [line.split()[-3:] for line in shown.splitlines() if " CACHED " in line]


def test_a_resumed_run_keeps_the_seconds_of_what_it_keeps(shop: Path, drivetrain: Command, last_json: Read) -> None:
    failed = last_json(drivetrain("run", "shop", "-p", "fail=crash", "--json"))
    resumed = last_json(drivetrain("resume", "--json"))
    assert seconds(resumed)["Make"] == seconds(failed)["Make"]
    assert seconds(resumed) == seconds(last_json(drivetrain("show", "--json")))


METRICS = """
    import drivetrain as dt
    from drivetrain.pipelines import current

    @dt.component
    def Learn() -> int:
        for step in range(100):
            current().metric("loss", 100 - step, step=step)
            current().metric("rate", 0.5, step=step)
        current().metric("gap", 1, step=1)
        current().metric("gap", float("nan"), step=2)
        current().metric("auc", 0.75)
        return 1

    @dt.pipeline
    def learning() -> None:
        Learn()
"""


def test_metrics_with_steps_are_drawn(
    project: Callable[..., Path], drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("learning", pipeline=METRICS)
    monkeypatch.chdir(folder.parent)
    drivetrain("run", "learning")
    (line,) = [line for line in drivetrain("show").stdout.splitlines() if line.startswith("Learn: ")]
    drawn = re.fullmatch(r"Learn: auc 0\.7500, gap –, loss 1\.0000 (\S{20}), rate 0\.5000 ▁{20}", line)
    assert drawn, line
    assert list(drawn[1]) == sorted(drawn[1], reverse=True)
    assert set(drawn[1]) == set("▁▂▃▄▅▆▇█")
