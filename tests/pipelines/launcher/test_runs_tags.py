"""Tags and notes of runs: given when a run starts, changed at any time, by several processes at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines import Home, PipelineFunction, list_runs, open_run, run_pipeline, tag_run

Pipe = Callable[..., PipelineFunction[..., object]]
MAKE = "Make(count=count)"


def test_a_run_starts_with_its_tags_and_its_note_and_ends_with_them(pipe: Pipe, home: Home) -> None:
    # A letter and its accent, apart: the store keeps them as one character.
    result = run_pipeline(home, pipe(MAKE), tags={"cafe\u0301": "x=1", "baseline": ""}, note="no\u0308te\nof two lines")
    run = open_run(home, result.run)
    assert run.state == "COMPLETE"
    assert run.tags == {"caf\u00e9": "x=1", "baseline": ""}
    assert run.note == "n\u00f6te\nof two lines"
    run_pipeline(home, pipe(MAKE))
    assert list_runs(home)[0].tags == {}
    assert list_runs(home)[0].note == ""


def test_tags_change_and_the_rest_of_the_run_stays(pipe: Pipe, home: Home) -> None:
    run = open_run(home, run_pipeline(home, pipe(MAKE), tags={"a": "", "b": "1"}, note="n").run)
    changed = tag_run(home, run, {"a": None, "b": "2", "c": ""})
    assert (changed.tags, changed.note) == ({"b": "2", "c": ""}, "n")
    assert tag_run(home, run, {"gone": None}, note="").note == ""
    again = open_run(home, run.id)
    assert again.tags == {"b": "2", "c": ""}
    assert (again.state, again.parameters, again.pipeline) == (run.state, run.parameters, run.pipeline)


def test_tags_of_many_at_once_are_all_kept(pipe: Pipe, home: Home) -> None:
    run = open_run(home, run_pipeline(home, pipe(MAKE)).run)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tag_run(home, run, {f"tag {number}": ""}), range(16)))
    assert len(open_run(home, run.id).tags) == 16


@pytest.mark.parametrize("tags", [{"": "x"}, {"x" * 256: ""}, {"\ud800": ""}, {"a": "\0"}])
def test_a_tag_that_cannot_be_recorded_is_refused_and_no_run_begins(pipe: Pipe, home: Home, tags: Any) -> None:
    with pytest.raises(InputError):
        run_pipeline(home, pipe(MAKE), tags=tags)
    assert not list_runs(home)
