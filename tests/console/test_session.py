"""A past run in a notebook: `dt.open`, its nodes, its artifacts, what they show."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import drivetrain as dt
import pytest
from click.testing import Result
from drivetrain import components
from drivetrain import report as drivetrain_report
from drivetrain.console.session import SUMMARIZED_BY, RunView, payload_file
from drivetrain.metadata import Artifact, Evaluation, LocalPayloads, summarize
from drivetrain.pipelines import Home, load_pipeline, open_run, run_pipeline
from drivetrain.report.artifact import render
from drivetrain.tests.metadata.payloads import staged

Command = Callable[..., Result]
NASTY = "<img src=x onerror=alert(1)>&\"'"


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
    with pytest.raises(dt.InputError, match=r"there are no runs in(.|\n)*--root, in Python root="):
        dt.open(root="nowhere")
    with pytest.raises(dt.InputError, match=f"fix: name {opened.root}, which holds runs"):
        dt.runs(root=opened.root.parent)


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
    assert re.sub(r'<a href="[^"]*">(.*?)</a>', r"\1", written) == dt.open().to_html()
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


def test_the_page_of_a_run_leads_to_its_artifacts_and_back(
    opened: RunView, drivetrain: Command, tmp_path: Path
) -> None:
    assert drivetrain("show", "--html", "my run.html").exit_code == 0
    pages = {page: page.read_text("utf-8") for page in (tmp_path / "my run-artifacts").iterdir()}
    run = tmp_path / "my run.html"
    pages[run] = run.read_text("utf-8")

    def links(page: Path) -> set[Path]:
        return {(page.parent / unquote(href)).resolve() for href in re.findall(r'<a href="([^"]*)"', pages[page])}

    assert {page for source in pages for page in links(source)} <= set(pages)
    assert links(run) == set(pages) - {run}  # every artifact
    assert all(run in links(artifact) for artifact in links(run))
    folder = tmp_path / "my run-artifacts"
    judged = folder / "Judge.evaluation.html"
    assert links(judged) == {run, folder / "Train.model.html"}
    assert judged in links(folder / "Train.model.html")
    # A report that is not ours keeps its frame, whose scripts do nothing.
    assert "<p>judged</p>" in page(pages[judged])
    assert "AUC 0.9; blessed" in pages[judged]
    assert drivetrain("show", "--html", "/dev/null").exit_code == 0
    assert not Path("/dev/null-artifacts").exists()


def test_a_report_of_ours_becomes_the_page_of_its_artifact() -> None:
    report = drivetrain_report.page("<b>", "its table", data=[], script="0;")
    page = render(
        "N.o", "Evil<script>", ("run <1>", "../r.html"), {"of": NASTY}, made_from=[(NASTY, None)], report=report
    )
    assert page.startswith(report[: report.index("<main>")])
    assert page.endswith(report[report.index("<header>") :])
    assert NASTY not in page
    assert page.count("<script") == report.count("<script") == 2
    assert '<a href="../r.html">run &lt;1&gt;</a>' in page
    signature = ["predict", {"inputs": [["x", {"dtype": "float32", "shape": [3]}]], "outputs": []}]
    assert "<td>float32[b,3]</td>" in render("N.o", "Model", ("run", None), {}, signatures=[signature])


OTHER_MANIFESTS = (
    "[]", '{"signatures": 7}', '{"signatures": {"serving": {"inputs": ["x"]}}}', '{"signatures": [["a"]]}',
    '{"signatures": [["a", null]]}', '{"signatures": [["a", {"inputs": [["x", {"dtype": "f", "shape": 7}]]}]]}',
    '{"signatures": ["ab"]}', "[" * 5000, "{",
)  # fmt: skip


@pytest.mark.parametrize("manifest", OTHER_MANIFESTS)
def test_a_manifest_of_a_components_own_is_no_bundles(
    project: Callable[..., Path], drivetrain: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.chdir(tmp_path)
    project(
        pipeline="""
        import drivetrain as dt
        from drivetrain.metadata import Model

        @dt.component
        def Make(manifest: str) -> Model:
            model = Model.new()
            (model.content / "manifest.json").write_text(manifest)
            return model

        @dt.pipeline
        def shop(manifest: str = ""):
            Make(manifest)
        """
    )
    (tmp_path / "parameters.json").write_text(json.dumps({"manifest": manifest}))
    ran = drivetrain("run", "shop", "--params", "parameters.json")
    assert ran.exit_code == 0, ran.output
    shown = drivetrain("show", "--html", "run.html")
    assert shown.exit_code == 0, shown.output
    assert "Signatures" not in (tmp_path / "run-artifacts" / "Make.model.html").read_text("utf-8")


MEASURED = """
    import drivetrain as dt
    from drivetrain.pipelines import current

    @dt.component
    def Fit() -> int:
        for step in range(1, 4):
            current().metric("train_loss", 1 / step, step=step)
            current().metric("eval_loss", 2 / step, step=step)
        current().metric("only", 0.5, step=7)
        current().metric("rows", 12_345)
        return 1

    @dt.pipeline
    def fitted() -> None:
        Fit()
"""


def test_the_page_of_a_run_draws_its_metrics(
    project: Callable[..., Path],
    drivetrain: Command,
    last_json: Callable[[Result], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = project("fitted", pipeline=MEASURED)
    monkeypatch.chdir(folder.parent)
    for state in ("COMPLETE", "CACHED"):  # the curves of what is reused
        assert drivetrain("run", str(folder)).exit_code == 0
        run = dt.open()
        assert run["Fit"].state == state
        document = run.to_html()
        curves = re.findall(r'<figure class="curves">(.*?)</figure>', document, re.S)
        assert [re.findall(r"<title>(.*?)</title>", curve) for curve in curves] == [
            ["eval_loss", "train_loss"],
            ["only", "only"],
        ]
        points = re.findall(r'<polyline class="s\d" points="([^"]*)"', curves[0])
        assert [len(line.split()) for line in points] == [3, 3]
        assert "<circle" in curves[1]  # a line of one point is not seen
        assert '<td>rows</td><td class="n">12,345</td>' in document
    (other,) = {line["run"] for line in last_json(drivetrain("runs", "--json"))["runs"]} - {run.id}
    assert drivetrain("show", "--html", "both.html", "--beside", other).exit_code == 0
    legend = re.findall(r"<figcaption>(.*?)</figcaption>", Path("both.html").read_text("utf-8"))
    assert re.findall(r">([^<]+)<", legend[1]) == [f"only, {run.id}", f"only, {other}"]
    assert drivetrain("show", "--beside", other).exit_code == 2


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


def test_no_file_of_a_payload_is_read_through_a_link_or_out_of_the_root(tmp_path: Path) -> None:
    payloads = LocalPayloads(tmp_path / "root")
    path = staged(payloads)
    payloads.publish(path, "artifacts/Make/1/out")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "report.html").write_text("private")
    home: Any = SimpleNamespace(payloads=payloads, root=tmp_path / "root")

    def read(uri: str, name: str) -> bytes | None:
        artifact: Any = SimpleNamespace(uri=uri)
        return payload_file(home, artifact, name)

    assert read("artifacts/Make/1/out", "content/deep/file.txt") == b"hello"
    assert read("artifacts/../../outside", "report.html") is None
    extra = payloads.path("artifacts/Make/1/out") / "extra"
    extra.rename(tmp_path / "was-extra")
    extra.symlink_to(tmp_path / "outside")
    assert read("artifacts/Make/1/out", "extra/report.html") is None


def test_it_knows_beside_which_component_each_standard_type_is_summarized() -> None:
    names = [getattr(components, name).__name__ for name in components.__all__]  # which imports them all
    assert len(names) > 15
    standard = {
        kind: module.removeprefix("drivetrain.components.")
        for kind, function in summarize.registry.items()
        if issubclass(kind, Artifact) and (module := function.__module__).startswith("drivetrain.components.")
    }
    assert standard == SUMMARIZED_BY
