"""The words of a command: each value is one argument, in a shell too; the words come back from JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import drivetrain as dt
import pytest
from drivetrain.pipelines.external import placeholders
from drivetrain.pipelines.external.placeholders import PlaceholderValues
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=30))
def test_a_value_is_one_argument_whatever_it_holds(value: str) -> None:
    filled = PlaceholderValues(parameters={"x": value})
    assert placeholders.fill(["p", "--x=" + dt.external.parameter("x"), dt.external.parameter("x")], filled) == [
        "p",
        f"--x={value}",
        value,
    ]
    # And in a shell, which splits nothing and runs nothing of it, be it in quotes of the script's own.
    script, arguments = placeholders.script(["printf '%s\\n.'", dt.external.parameter("x")], filled)
    done = subprocess.run(["/bin/sh", "-c", script, "sh", *arguments], capture_output=True, check=True)
    assert done.stdout == f"{value}\n.".encode()


@pytest.mark.parametrize("quote", ['"', "'", "`", "$(", ""])
def test_no_value_is_ever_run_by_the_shell(tmp_path: Path, quote: str) -> None:
    bad = tmp_path / "bad"
    close = {"$(": ")"}.get(quote, quote)
    run = dt.shell_component(
        "Run",
        ["printf '%s'", quote + dt.external.parameter("x") + close, "> /dev/null; true"],
        parameters={"x": str},
        shell=True,
    )
    for attack in (f"; touch {bad}", f"'; touch {bad}; '", f'"; touch {bad}; "', f"$(touch {bad})", f"`touch {bad}`"):
        run(x=attack)
    assert not bad.exists()


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=5), min_size=1, max_size=4))
def test_words_come_back_from_json(texts: list[str]) -> None:
    given: list[placeholders.Word] = [
        *texts,
        dt.external.parameter("x"),
        texts[0] + dt.external.input_path("a") + "b" + dt.external.output_path("c"),
    ]
    given.append(dt.external.if_present("x", ["--x", dt.external.parameter("x")], texts))
    assert placeholders.decode(json.loads(json.dumps(placeholders.encode(given)))) == tuple(given)
