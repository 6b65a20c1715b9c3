"""Components whose equal inputs may give another content: what they gave before does not stand in."""

from __future__ import annotations

import pytest
from drivetrain.pipelines import Home, run_pipeline
from drivetrain.tests.pipelines.flows import Pipe, flows, states, value


@pytest.fixture
def flow(pipe: Pipe) -> Pipe:
    return flows(pipe)


MORE = """
    import random

    @dt.component(deterministic=False)
    def Draw(*, most: int) -> int:
        return random.SystemRandom().randrange(most)

    now = dt.shell_component("Now", ["sh", "-c", 'date +%s%N > "$0"', dt.external.output_path("at")],
                             outputs={"at": str},
                             deterministic=False)
"""


def test_it_runs_anew_unless_it_is_said(home: Home, flow: Pipe) -> None:
    body = """
        drawn = Draw(most=10**9)
        Draw.options(id="Kept", cache=True)(most=10**8)
        Draw.options(id="Patient", retries=2)(most=10**9)
        at = now().at
        Note.options(id="Drawn")(text=at, number=drawn)
        Note(text=at)
    """
    function = flow(body, MORE)
    built = function.build()
    assert {node.id: node.cache for node in built.nodes} == {
        "Draw": False, "Kept": True, "Patient": False, "Now": False, "Drawn": True, "Note": True
    }  # fmt: skip
    first, second = run_pipeline(home, function), run_pipeline(home, function)
    assert states(second) == dict.fromkeys(states(first), "COMPLETE") | {"Kept": "CACHED"}
    assert value(first, "Draw") != value(second, "Draw")
    assert value(first, "Kept") == value(second, "Kept")
    assert value(first, "Now") != value(second, "Now")
    assert second.nodes["Draw"].reason == "the cache is off for it"
