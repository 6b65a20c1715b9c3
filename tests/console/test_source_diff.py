"""Differences of source: the lines of code alone, each with the definition around it."""

import pytest
from drivetrain.console.source_diff import source_diff, text_diff

BEFORE = '''"""Features."""
from math import log  # natural

LATE = 15.0  # minutes
A, B = 1, 2


class Net:
    """A net."""

    width: int = 8

    @property
    def wide(self) -> bool:
        return self.width > 4


def preprocess(x):
    """Scale."""

    def inner(y):
        return y + 1

    if x:
        z = """two
lines"""
    return inner(x)
'''


@pytest.mark.parametrize(
    ("old", "new", "definition"),
    [
        ("15.0", "20.0", "LATE"),
        ("1, 2", "1, 3", "A, B"),
        ("import log ", "import exp ", "import"),
        ("= 8", "= 9", "Net"),
        ("@property", "@cached", "Net.wide"),
        ("> 4", "> 5", "Net.wide"),
        ("y + 1", "y + 2", "preprocess.inner"),
        ("two", "2", "preprocess"),
        ("inner(x)", "inner(x) # and more\n    y = 1", "preprocess"),
    ],
)
def test_a_changed_line_is_named_by_its_definition(old: str, new: str, definition: str) -> None:
    (hunk,) = source_diff(BEFORE, BEFORE.replace(old, new))
    assert hunk.definition == definition
    lines = BEFORE.split("\n")
    assert all(lines[line.number - 1] == line.text and old in line.text for line in hunk.old)
    assert new.split("\n")[-1] in hunk.new[-1].text


def test_comments_docstrings_and_blank_lines_do_not_differ() -> None:
    other = BEFORE.replace("# minutes", "# min").replace("Scale.", "Scale\n    all.").replace("\n\n", "\n\n\n")
    assert source_diff(BEFORE, "# a comment\n" + other) == []
    assert source_diff(BEFORE, BEFORE.replace("lines", "lines # no comment")) != []


def test_lines_of_several_definitions_stand_apart() -> None:
    old = "def a():\n    return 1\ndef b():\n    return 2\n"
    hunks = source_diff(old, "def c():\n    x = 1\ndef d():\n    y = 2\n")
    assert [hunk.definition for hunk in hunks] == ["a", "b", "c", "d"]
    assert [line.number for line in hunks[2].new] == [1, 2]
    (added,) = source_diff("", "x = 1\n")
    assert (added.old, added.new[0]) == ((), (1, "x = 1"))


def test_what_this_python_cannot_parse_is_compared_as_text() -> None:
    (hunk,) = source_diff("print 1\n\n", "print(1)\n")
    assert (hunk.old[0].text, hunk.new[0].text) == ("print 1", "print(1)")
    assert text_diff("a: 1\n\nb: 2", "a: 1\nb: 3")[0].old == ((3, "b: 2"),)
