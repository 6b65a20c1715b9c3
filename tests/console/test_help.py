"""Every verb says what it does and shows an example; the options are the same everywhere."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import Result
from drivetrain.console.cli import VERBS, cli

Command = Callable[..., Result]


def verbs(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, *path, name)
        else:
            yield (*path, name)


def test_the_verbs_are_those_of_the_founding_issue(drivetrain: Command) -> None:
    names = {path[0] for path in verbs(cli)}
    assert names >= {"run", "resume", "runs", "show", "why", "lineage", "schema", "fsck", "doctor"}
    text = drivetrain("--help").stdout
    assert all(name in text for name in names)
    assert text.index("  run ") < text.index("  doctor ")
    assert drivetrain("--version").stdout.startswith("drivetrain, version ")


def test_the_list_of_verbs_says_what_the_verbs_say_of_themselves() -> None:
    assert {name: verb.get_short_help_str(1000) for name, verb in cli.commands.items()} == VERBS


def test_help_imports_no_verb() -> None:
    """Else each new verb would make every call of the shell slower."""
    code = "import sys; from drivetrain.console.cli import cli; "
    code += "cli._code(['--help']); print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "  doctor " in ended.stdout
    ours = {name for name in ended.stderr.split() if name.startswith("drivetrain.")}
    assert ours <= {f"drivetrain.{name}" for name in HELP_NEEDS}


HELP_NEEDS = ("console", "console.cli", "console.exit_codes", "console.verbs", "errors", "lazy")


@pytest.mark.parametrize("group", [(), ("schema",), ("kubeflow", "schedule")], ids=" ".join)
def test_the_list_of_verbs_cuts_no_sentence(group: tuple[str, ...], drivetrain: Command) -> None:
    listed = drivetrain(*group, "--help").stdout.partition("Commands:")[2].partition("Example")[0]
    assert listed.strip()
    assert "..." not in listed


@pytest.mark.parametrize("path", list(verbs(cli)), ids=" ".join)
def test_each_verb_has_an_example_that_it_understands(path: tuple[str, ...], drivetrain: Command) -> None:
    text = drivetrain(*path, "--help").stdout
    assert f"drivetrain {' '.join(path)}" in text.partition("Example")[2]
    for option in ("--root", "--store", "--json"):
        assert option in text
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    for line in text.partition("Example")[2].splitlines():
        if not line.strip().startswith(f"drivetrain {' '.join(path)}"):
            continue
        words = shlex.split(line.split(" > ")[0])
        try:
            command.make_context(path[-1], words[len(path) + 1 :])  # raises on an unknown option
        except click.BadParameter as error:
            if "does not exist" not in error.message:  # what does not is a file of the reader's
                raise


def test_run_documents_its_exit_codes(drivetrain: Command) -> None:
    for verb in ("run", "resume"):
        text = drivetrain(verb, "--help").stdout
        codes = text.partition("Exit codes:")[2]
        assert [line.split()[0] for line in codes.splitlines()[1:8]] == ["0", "1", "2", "3", "4", "130", "143"]
