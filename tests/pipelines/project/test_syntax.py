"""The digest of a module's syntax: comments, layout and docstrings change nothing, whatever Python runs does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from drivetrain.pipelines.project.syntax import reads_text, syntax_digest
from drivetrain.tests.pipelines.project.generated_modules import mutants

HOUSE = Path(__file__).parents[3]
EXAMPLES = sorted((HOUSE / "examples").glob("*/*.py"))
EVERYTHING = '''
import os.path as p, sys
from . import a
from ..b import c as d, e
X: int = -1; Y = 1j; Z = 10**5; W = 1_000; big = 0xFFFFFFFFFFFFFFFFFFFFFFFF
text = "é" "ß\\n" u"x"; raw = rb"\\x00"; nothing = None; dots = ...; yes = True
f1 = f"{X!r:>{W}} {{}} {Y:}" "tail" f"{X=}" f"" "end"
def f(a, /, b=1, *c, d, e=None, **g) -> "int":
    """Doc."""
    global X; nonlocal_ = [*c, {**g}, {1, 2}, (yield), lambda *, k=0: k]
    with open(a) as h, b: pass
    try: assert b, "no"
    except (A, B) as error: raise C from error
    else: del a[1:2, ::3]
    finally: return a if b else not c
async def g():
    async for x in y: await z
    return [i async for i in j if i if not i]
class K(Base, metaclass=M):
    "Doc."
    x: int
    @property
    def y(self): return self.z.w @ 2 // 3 << 1 < 4 <= 5 != 6 in 7 is not None
match command:
    case None | 1 | "a" | -1.5: pass
    case [x, *rest] if x: pass
    case {"k": v, **more}: pass
    case Point(x=0, y=_) as q: pass
while (n := n - 1): continue
else: pass
'''


def digest(text: str | bytes) -> str:
    return syntax_digest(ast.parse(text))


def test_it_is_the_same_on_every_python() -> None:
    """This value was computed on 3.11, 3.12 and 3.13; keys made on one of them are looked up on another."""
    assert digest(EVERYTHING) == "c1a22f222dbac6194bd5942612cd6b7b4ab6b0dfcae9fc49a8e869033a0e6d5e"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_layout_and_comments_do_not_count(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert digest(ast.unparse(ast.parse(text))) == digest(text)  # Python's own writer: no comment, no layout of ours
    assert digest(f"# new\n\n{text}\n\n# end\n") == digest(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('def f():\n    """Doc."""\n    return 1', "def f():\n    return 1"),
        ('class A:\n    "Doc."\n    x = 1', 'class A:\n    "Other."\n    x = 1'),
        ('"""Module."""\nx = 1', "x = 1"),
        ("x = (1 +\n  2)", "x = 1+2"),
        ("x = 'a' 'b'", 'x = "ab"'),
        ("x = 0x10", "x = 16"),
        ("f(a, b,)", "f(a, b)"),
        ("x = u'a'", "x = 'a'"),
    ],
)
def test_what_does_not_count(one: str, other: str) -> None:
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 0.0", "x = -0.0"),
        ("x = 'a'", "x = b'a'"),
        ("x = None", "x = 'None'"),
        ("x = ...", "x = Ellipsis"),
        ("x = a, b", "x = [a, b]"),
        ("f(a, b)", "f((a, b))"),
        ("f(*a)", "f(a)"),
        ("{**a}", "{None: a}"),
        ("from .a import b", "from ..a import b"),
        ("from a import b", "import a.b"),
        ("def f(a, /): 0", "def f(a): 0"),
        ("def f(*, a): 0", "def f(a): 0"),
        ("x = f'{a}'", "x = f'{a!r}'"),
        ("x = f'{a}b'", "x = f'{a}' + 'b'"),
        ("x = '\\ud800'", "x = '\\ud801'"),
        ("if a: b\nc", "if a:\n  b\n  c"),
        ("x = 'doc'\nx", "'doc'\nx"),
        ("a = b = c", "a = c; b = c"),
        ("a = 1; b = 2", "a = 1\nb = 2"),  # a saved position could not tell them apart
        ("if a: b()", "if a:\n  b()"),
        ("x = (y for y in z)", "x = [y for y in z]"),
        ("def f():\n  x = 1\n  'not a docstring'", "def f():\n  x = 1\n  'another'"),
    ],
)
def test_what_counts(one: str, other: str) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_literal_operator_and_name_counts(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    digests = [syntax_digest(mutant) for mutant in mutants(tree)]
    assert syntax_digest(tree) == digest(path.read_bytes())
    assert syntax_digest(tree) not in digests


def test_deep_expressions_have_a_digest() -> None:
    deep = " + ".join(["x"] * 900)
    assert digest(f"y = {deep}") != digest(f"y = {deep} + x")


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        (b"x = f.__doc__", True),
        (b"import inspect", True),
        (b"getattr(f, '__doc__')", True),
        (b"x = frame.f_lineno", True),
        (b"f.__code__.co_consts", True),  # the docstring is among them
        (b"warning.lineno", True),
        (b"from pydoc import getdoc", True),
        (b"Path(__file__).parent / 'data.csv'", False),
        (b"parser.add_argument('-n', help='rows')", False),
        (b"def preprocess(x): return x", False),
        (b"inspection = 1", False),
    ],
)
def test_who_reads_the_text_itself(source: bytes, reads: bool) -> None:
    assert reads_text(source) == reads
