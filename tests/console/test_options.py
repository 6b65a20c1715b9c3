"""What verbs share: the ways to give a parameter, the root, the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console.options import ConsoleSettings

Json = dict[str, Any]
Command = Callable[..., Result]
Read = Callable[[Result], Json]


def test_parameters_come_from_the_shell_a_file_and_the_environment_in_this_order(
    spans: Path, drivetrain: Command, last_json: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    def total(*arguments: str) -> object:
        run = last_json(drivetrain("run", "spans", *arguments, "--json"))["run"]
        shown = last_json(drivetrain("diff", run, run, "--json"))
        assert shown["nodes"] == {}
        listed = last_json(drivetrain("runs", "--json"))["runs"]
        return next(one["parameters"] for one in listed if one["run"] == run)

    for name, text in {"p.json": '{"span": 5}', "p.yaml": "span: 5\n", "p.toml": "span = 5\n"}.items():
        Path(name).write_text(text)
        assert total("--params", name) == {"span": 5, "by": 2}
    monkeypatch.setenv("DRIVETRAIN_PARAM_SPAN", "6")
    monkeypatch.setenv("DRIVETRAIN_PARAM_BY", "9")
    assert total() == {"span": 6, "by": 9}
    assert total("--params", "p.yaml") == {"span": 5, "by": 9}
    assert total("--params", "p.yaml", "--param", "span=8") == {"span": 8, "by": 9}
    Path("bad.yaml").write_text("- 1\n")
    bad = drivetrain("run", "spans", "--params", "bad.yaml")
    assert bad.exit_code == 2
    assert "holds no parameters" in bad.stderr


def test_root_is_where_everything_lies(shop: Path, drivetrain: Command, last_json: Read, tmp_path: Path) -> None:
    assert drivetrain("run", "shop", "--root", "deep/runs").exit_code == 0
    assert (tmp_path / "deep" / "runs" / "metadata.db").is_file()
    assert not (tmp_path / ".drivetrain").exists()
    elsewhere = f"sqlite:///{tmp_path}/other.db"
    assert drivetrain("run", "shop", "--store", elsewhere).exit_code == 0
    assert len(last_json(drivetrain("runs", "--store", elsewhere, "--json"))["runs"]) == 1
    assert (tmp_path / "other.db").is_file()
    assert not (tmp_path / ".drivetrain" / "metadata.db").exists()


@pytest.mark.parametrize("name", ["password", "sslpassword"])
def test_a_suggested_command_shows_no_password(name: str) -> None:
    settings = ConsoleSettings(None, f"postgresql://u@h/db?{name}=hunter22hunter", None, False)
    assert "--store" in settings.as_options
    assert "hunter22" not in settings.as_options
