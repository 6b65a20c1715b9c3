"""`gc` and `pin`: a dry run, marking, removal, taking back, and what they say."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


@pytest.fixture
def runs(shop: Path, drivetrain: Command, last_json: Read) -> list[Json]:
    """Two runs with different outputs."""
    return [last_json(drivetrain("run", "shop", "--json", "-p", f"rows={rows}")) for rows in (3, 4)]


def uri(run: Json, node: str) -> str:
    (items,) = run["nodes"][node]["outputs"].values()
    return str(items[0]["uri"])


def test_without_a_policy_nothing_is_decided(runs: list[Json], drivetrain: Command) -> None:
    result = drivetrain("gc")
    assert result.exit_code == 2
    assert "there is no retention policy" in result.stderr
    assert "--keep-last 5" in result.stderr


def test_a_dry_run_changes_nothing(shop: Path, runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    answer = last_json(drivetrain("gc", "--keep-last", "1", "--json"))
    # Train gave the same twice, by other inputs; the newest push stays, with all that led to it.
    assert answer["applied"] is False
    assert uri(runs[0], "Make") in answer["mark"]["uris"]
    assert not {uri(runs[1], node) for node in runs[1]["nodes"]} & set(answer["mark"]["uris"])
    assert answer["kept"]["pushed to serving/shop"] == 1
    text = drivetrain("gc", "--keep-last", "1").stdout
    assert "mark: no rule keeps it" in text
    assert "nothing was changed" in text
    assert last_json(drivetrain("gc", "--keep-last", "1", "--json")) == answer
    assert drivetrain("gc", "--keep-last", "2").stdout.endswith("nothing to collect\n")


def test_what_is_marked_can_be_taken_back_until_it_is_removed(
    shop: Path, runs: list[Json], drivetrain: Command, last_json: Read
) -> None:
    oldest = shop.parent / ".drivetrain" / uri(runs[0], "Make")
    text = drivetrain("gc", "--keep-last", "1", "--apply").stdout
    assert "`drivetrain gc --undo` takes it back" in text
    assert oldest.is_dir()
    for option in (("--apply",), ("--keep-last", "1"), ("--why", "x"), ("--grace", "0"), ("--quota", "1GB")):
        refused = drivetrain("gc", "--undo", *option)
        assert (refused.exit_code, f"and {option[0]} would change nothing" in refused.stderr) == (2, True)
    assert len(last_json(drivetrain("gc", "--undo", "--json"))["restored"]) == text.count("marked 5") * 5 == 5
    answer = last_json(drivetrain("gc", "--keep-last", "1", "--grace", "0", "--apply", "--json"))
    assert (answer["marked"], answer["deleted"], answer["left"]) == (5, 5, [])
    assert not oldest.exists()
    assert drivetrain("fsck").exit_code == 0
    run = runs[0]["run"]
    assert "collected by gc" in drivetrain("show", run).stdout
    assert "first run" in drivetrain("why", "Train", "--run", run).stdout
    assert uri(runs[0], "Make") in drivetrain("lineage", "Train", "--run", run).stdout
    # What was collected is made again where it is needed, and only then.
    again = last_json(drivetrain("run", "shop", "--json", "-p", "rows=3"))
    assert again["nodes"]["Make"]["state"] == "COMPLETE"
    assert (
        again["nodes"]["Make"]["outputs"]["examples"][0]["fingerprint"]
        == (runs[0]["nodes"]["Make"]["outputs"]["examples"][0]["fingerprint"])
    )


def test_what_was_marked_before_counts_where_there_is_no_grace(
    runs: list[Json], drivetrain: Command, last_json: Read
) -> None:
    marked = last_json(drivetrain("gc", "--keep-last", "1", "--apply", "--json"))["marked"]
    planned = last_json(drivetrain("gc", "--keep-last", "1", "--grace", "0", "--json"))["delete"]
    answer = last_json(drivetrain("gc", "--keep-last", "1", "--grace", "0", "--apply", "--json"))
    assert (answer["marked"], answer["deleted"], answer["freed"]) == (0, marked, planned["bytes"])
    assert marked > 0


def test_reading_what_was_collected_says_so(runs: list[Json], drivetrain: Command) -> None:
    import drivetrain as dt
    from drivetrain.errors import InputError

    drivetrain("gc", "--keep-last", "1", "--grace", "0", "--apply")
    artifact = dt.open(runs[0]["run"]).artifact("Make")
    with pytest.raises(InputError, match=r"was collected by `drivetrain gc`, marked .*no rule keeps it"):
        print(artifact.content)


def test_lineage_says_what_was_collected_and_when(runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    oldest = uri(runs[0], "Make")
    assert last_json(drivetrain("lineage", oldest, "--json"))["artifacts"][0]["collected"] is None
    drivetrain("gc", "--keep-last", "1", "--grace", "0", "--apply")
    assert re.search(
        r"collected by gc, marked \S+Z: no rule keeps it", " ".join(drivetrain("lineage", oldest).stdout.split())
    )
    assert "no rule keeps it" in last_json(drivetrain("lineage", oldest, "--json"))["artifacts"][0]["collected"]


def test_why_says_what_becomes_of_one(runs: list[Json], drivetrain: Command) -> None:
    def why(node: str, index: int) -> str:
        return drivetrain("gc", "--keep-last", "1", "--why", uri(runs[index], node)).stdout.replace("\n", " ")

    assert "would be marked: no rule keeps it" in why("Make", 0)
    assert "kept: led to what is pushed to serving/shop" in why("Make", 1)
    assert "kept: of the last runs" in why("Guard", 1)
    drivetrain("gc", "--keep-last", "1", "--apply")
    assert "marked; its grace goes on" in why("Make", 0)
    result = drivetrain("gc", "--keep-last", "1", "--why", "nothing")
    assert (result.exit_code, "is not an artifact" in result.stderr) == (2, True)


def test_a_pin_keeps_what_it_names(runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    assert drivetrain("pin").stdout == "nothing is pinned\n"
    model = uri(runs[0], "Train")
    drivetrain("pin", model, "--reason", "the audit", "--by", "ann")
    assert drivetrain("pin").stdout == f"Model {model}, by ann: the audit\n"
    marked = last_json(drivetrain("gc", "--keep-last", "1", "--json"))["mark"]["uris"]
    assert model not in marked
    assert uri(runs[0], "Make") not in marked
    drivetrain("pin", "--remove", model)
    assert model in last_json(drivetrain("gc", "--keep-last", "1", "--json"))["mark"]["uris"]
    pinned = last_json(drivetrain("pin", "--run", runs[0]["run"], "--json"))
    assert len(pinned["uris"]) == 5
    assert last_json(drivetrain("gc", "--keep-last", "1", "--json"))["mark"]["count"] == 0
    assert drivetrain("pin", model, "--run", runs[0]["run"]).exit_code == 2
    assert drivetrain("pin", "nothing").exit_code == 2
    for option in (["--remove"], ["--reason", "the audit"]):  # of what? a list of the pins would look like success
        result = drivetrain("pin", *option)
        assert (result.exit_code, "name an ARTIFACT" in result.stderr) == (2, True)


def test_the_policy_of_the_project_is_read(shop: Path, runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    policy = shop.parent / "retention.yaml"
    policy.write_text("rules:\n- type: Examples\n  keep_last: 1\nlineage: false\ngrace: 0\n")
    answer = last_json(drivetrain("gc", "--json"))
    assert answer["mark"]["uris"] == [uri(runs[0], "Make")]
    result = drivetrain("gc", "--keep-last", "1")
    assert (result.exit_code, "the rules are in" in result.stderr) == (2, True)
    assert last_json(drivetrain("gc", "--apply", "--json"))["deleted"] == 1


def test_a_wrong_policy_is_refused_with_its_line(shop: Path, runs: list[Json], drivetrain: Command) -> None:
    for text, line, message in (
        ("", "", "is empty"),
        ("rules: []", "1", "rules is empty"),
        ("rules:\n- {}", "2", "is empty"),
        ("rules:\n- keep_lats: 1", "2", "keep_last"),
        ("rules:\n- keep_last: 0", "2", "less than 1"),
        ("rules:\n- keep_last: 1\n  keep_for: soon", "3", "not an interval"),
        ("rules:\n- keep_last: 1\nquota: much", "3", "not an amount of bytes"),
        ("rules:\n- keep_last: 1\ngrace: -1d", "3", "grace"),
        ("rules:\n- keep_last: 1\nlineage: perhaps", "3", "true"),
        ("grace: 1d", "1", "no rules"),
        ("rules: [", "", "not YAML"),
    ):
        (shop.parent / "mine.yaml").write_text(text)
        result = drivetrain("gc", "--policy", "mine.yaml", "--apply")
        assert result.exit_code == 2, text
        assert f"mine.yaml:{line}" in result.stderr or not line, text
        assert message in result.stderr, text
        assert "fix:" in result.stderr, text


def test_a_quota_alone_keeps_the_rest(runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    assert last_json(drivetrain("gc", "--quota", "1GB", "--json"))["mark"]["count"] == 0
    answer = last_json(drivetrain("gc", "--quota", "1", "--json"))
    assert uri(runs[0], "Make") in answer["mark"]["uris"]
    assert set(answer["reasons"].values()) == {"longest unused, beyond the quota"}
    result = drivetrain("gc", "--quota", "much")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: --quota: 'much' is not an amount of bytes")


def test_work_that_nobody_went_on_with_goes(shop: Path, runs: list[Json], drivetrain: Command, last_json: Read) -> None:
    source = (shop / "pipeline.py").read_text()
    written = "(current().work_dir / 'checkpoint').write_bytes(bytes(2_000_000))"
    crash = 'raise ValueError("boom [in here]")'
    (shop / "pipeline.py").write_text(source.replace(crash, f"{written}\n        {crash}"))
    assert drivetrain("run", "shop", "--param", "fail=crash").exit_code == 2
    (folder,) = (path for path in (shop.parent / ".drivetrain/work/nodes").iterdir() if (path / "checkpoint").exists())
    gc = ("gc", "--keep-last", "5")
    assert last_json(drivetrain(*gc, "--json"))["work"] == {"count": 0, "bytes": 0, "folders": []}
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (0, 0))
    text = drivetrain(*gc).stdout
    assert re.search(r"\(work folder\) +remove: nobody went on with it for a week +1 +2 MB", text)
    assert "nothing was changed" in text
    applied = drivetrain(*gc, "--apply").stdout
    assert "removed 1 work folder, 2 MB: nobody went on with it for a week" in applied
    assert not folder.exists()
    assert drivetrain(*gc).stdout.endswith("nothing to collect\n")
    assert drivetrain("fsck").exit_code == 0
