"""`run`: what it prints, and the exit code that says whose turn it is."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


NODES = ["Make", "Guard", "Train", "Judge", "Push"]


def test_a_complete_run_prints_every_node_the_verdict_and_the_push(shop: Path, drivetrain: Command) -> None:
    result = drivetrain("run", "shop")
    assert result.exit_code == 0, result.output
    table = result.stdout[result.stdout.index("reason") :]
    for node in NODES:
        line = next(line for line in table.splitlines() if node in line)
        assert "COMPLETE" in line
        assert "first run" in line
    assert "AUC 0.9; blessed" in table
    assert "version 2 at serving/shop/2" in table


def test_json_is_the_last_line_and_has_the_promised_shape(shop: Path, drivetrain: Command, last_json: Read) -> None:
    result = drivetrain("run", "shop", "--json")
    answer = last_json(result)
    assert list(answer) == ["run", "state", "nodes", "blessed", "closing"]
    assert answer["state"] == "COMPLETE"
    assert list(answer["nodes"]) == NODES
    for node in answer["nodes"].values():
        assert list(node) == ["state", "seconds", "reason", "outputs"]
        for items in node["outputs"].values():
            assert [sorted(item) for item in items] == [["fingerprint", "type", "uri"]]
    assert answer["nodes"]["Make"]["outputs"]["examples"][0]["type"] == "Examples"


def test_the_second_run_is_cached_and_says_from_where(shop: Path, drivetrain: Command, last_json: Read) -> None:
    first = last_json(drivetrain("run", "shop", "--json"))
    second = last_json(drivetrain("run", "shop", "--json"))
    for name, node in second["nodes"].items():
        assert node["state"] == "CACHED"
        assert node["reason"] == f"same work as run {first['run']}"
        assert node["outputs"] == first["nodes"][name]["outputs"]
    third = last_json(drivetrain("run", "shop", "--no-cache", "--json"))
    assert {node["state"] for node in third["nodes"].values()} == {"COMPLETE"}


def test_a_veto_is_three_and_quotes_the_rows(shop: Path, drivetrain: Command, last_json: Read) -> None:
    result = drivetrain("run", "shop", "--param", "rows=11")
    assert result.exit_code == 3
    said = " ".join(result.stdout.split())
    assert "stopped by Guard" in said
    assert "error carrier train 1 row holds [values] that are not in the domain" in said
    assert "row 17 of train: carrier=ZZ_NEW, year=2013, dest=–" in said
    assert "fix: mend the row or add ZZ_NEW to the domain" in said
    for verb in ("update", "infer", "accept --replace"):
        assert f"`drivetrain schema {verb}`" in said
    elsewhere = drivetrain("run", "shop", "--param", "rows=11", "--root", "runs")
    assert "`drivetrain schema accept --replace --root runs`" in " ".join(elsewhere.stdout.split())
    answer = last_json(drivetrain("run", "shop", "-p", "rows=11", "--json"))
    assert answer["state"] == "STOPPED"
    assert answer["nodes"]["Train"]["state"] == "BLOCKED"


def test_wrong_input_and_wrong_code_are_two(shop: Path, drivetrain: Command) -> None:
    wrong = drivetrain("run", "shop", "--param", "fail=user")
    assert wrong.exit_code == 2
    assert "the column 'x' is missing" in wrong.stdout
    line = (shop / "pipeline.py").read_text().splitlines().index('        raise ValueError("boom [in here]")') + 1
    crash = drivetrain("run", "shop", "--param", "fail=crash")
    assert crash.exit_code == 2
    assert "ValueError: boom [in here]" in crash.stdout
    assert "Traceback" not in crash.output
    assert crash.stderr.splitlines()[1:] == [f"error: Train: {shop}/pipeline.py:{line}: ValueError: boom [in here]"]
    result = drivetrain("run", "shop", "--param", "fail=crash", "--json")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[1:] == crash.stderr.splitlines()[1:]
    shown = drivetrain("show")
    assert shown.stdout.count("File ") == 1, "of the traceback the user's lines alone"
    assert f'File "{shop}/pipeline.py", line {line}, in ' in shown.stdout
    logged = drivetrain("logs", "", "Train").stdout
    assert logged.count("File ") > 1, "the whole of it is in the log"


def test_an_error_that_begins_with_the_nodes_name_is_not_said_to_be_its_twice(
    tmp_path: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.py").write_text(
        "import drivetrain as dt\n"
        'Count = dt.shell_component("Count", ["false"])\n\n@dt.pipeline\ndef counting() -> None:\n    Count()\n'
    )
    result = drivetrain("run", ".")
    assert result.stderr.splitlines()[1] == "error: Count: `false` ended with exit code 1"


def test_a_crash_of_ours_is_one(shop: Path, drivetrain: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.pipelines.launcher.attempt.checked_outputs", None)
    crash = drivetrain("run", "shop")
    assert crash.exit_code == 1
    assert crash.stderr.splitlines()[1:] == ["error: Make: TypeError: 'NoneType' object is not callable"]
    assert "attempt.py" in drivetrain("show").stdout


def test_an_error_in_the_project_names_its_line(shop: Path, drivetrain: Command) -> None:
    source = (shop / "pipeline.py").read_text()
    for broken, said in (
        (
            source.replace("Make(rows)\n    Guard", "Mke(rows)\n    Guard"),
            "there is no name 'Mke' (NameError)\n  fix: did you mean 'Make'?",
        ),
        (source.replace("def Push(model", "def Push(model:"), "SyntaxError"),
        (
            source.replace("import time\n", "import no_such_thing\n"),
            "there is no module 'no_such_thing' (ModuleNotFoundError)",
        ),
        (source.replace("Train(examples, fn", "Train(model=examples, fn"), "Train has no parameter 'model'"),
    ):
        (shop / "pipeline.py").write_text(broken)
        result = drivetrain("run", "shop")
        assert result.exit_code == 2, result.output
        assert said in result.stderr
        assert f"{shop / 'pipeline.py'}:" in result.stderr.splitlines()[0]
        assert not (shop.parent / ".drivetrain" / "artifacts").exists()


@pytest.mark.parametrize(
    ("metric", "runner", "line", "text"),
    [
        ("acu", "inline", 6, ["there is no metric 'acu'", "  fix: did you mean 'auc'?"]),
        ("raises", "process", 8, ["there is no 'area' in TABLE (KeyError)", "  fix: did you mean 'are'?"]),
    ],
)
def test_an_error_names_the_node_that_refuses_and_not_those_that_ran_first(
    project: Callable[..., Path],
    drivetrain: Command,
    metric: str,
    runner: str,
    line: int,
    text: list[str],
) -> None:
    pipeline = """
    import drivetrain as dt
    TABLE = {"are": 1}
    def refuse(known, coming):
        if known.get("metric") == "acu":
            raise dt.InputError("there is no metric 'acu'", fix="did you mean 'auc'?")
        if known.get("metric") == "raises":
            return TABLE["area"]

    @dt.component
    def Make(size: int) -> int:
        return size

    @dt.component(preflight=refuse)
    def Judge(size: int, *, metric: str) -> int:
        return size

    @dt.component
    def Publish(size: int) -> int:
        return size

    @dt.pipeline
    def shop(metric: str) -> None:
        Publish(Judge(Make(1), metric=metric))
    """
    folder = project("shop", pipeline=pipeline)
    refused = drivetrain("run", str(folder), "--param", f"metric={metric}", "--runner", runner)
    assert refused.exit_code == 2
    for printed in (refused.stdout, (shown := drivetrain("show").stdout)):
        table = printed[printed.index("node ") :].partition("\n\n")[0]
        rows = [
            "Make BLOCKED 0.00 Judge refused what was to come of it",
            f"Judge FAILED 0.00 {folder / 'pipeline.py'}:{line}: {text[0]}",
            "Publish BLOCKED 0.00 Judge failed",
        ]  # long lines are folded, at words or within them
        printed_rows, expected = (
            re.sub(r"\d+\.\d\d|[\s└]", "", text) for text in (table.partition("\n")[2], "".join(rows))
        )
        assert printed_rows == expected
    assert f"Judge failed: {folder / 'pipeline.py'}:{line}: {text[0]}\n{text[1]}\n" in shown
    page = folder.parent / "run.html"
    drivetrain("show", "--html", str(page))
    assert "Judge refused what was to come of it" in page.read_text()
    nodes = json.loads(drivetrain("show", "--json").stdout)["nodes"]
    assert {name: node.get("refused_by") for name, node in nodes.items()} == {
        "Make": "Judge", "Judge": None, "Publish": None,
    }  # fmt: skip
    error = refused.stderr[refused.stderr.index("error: ") :].splitlines()
    assert error == [
        f"error: Judge: {folder / 'pipeline.py'}:{line}: {text[0]}",
        *text[1:],
        "  so this ended early: Make",
    ]
