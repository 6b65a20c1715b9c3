"""Small projects out of the ways in which Python code reaches other code, and edits of them."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator
from typing import Any, Final

Project = dict[str, str]
"""Text by file; `start.go()` gives the content of a node."""


_OF_ITS_OWN: Final = re.compile(r"(?<! )#")  # before a comment there is a space
UNUSED: Final = '''
SPARE# = 7  # of nobody
def spare#(x, y=2):
    """Nobody calls it."""
    return x * y + SPARE#
class Spare#:
    size = 3
'''
# How features.py reaches a value: lines of util.py (u) and of features.py (f), and the expression (=). In a block, `#`
# stands for a number of its own, so that names do not meet.
WAYS: Final = """
u| K# = 2  # two
f| from .util import K#
=| K# + 1

u| def f#(x, y=4):
u|     '''Doc.'''
u|     return x * y - 1
f| from .util import f#
=| f#(3)

u| def f#(x):
u|     return x + 1
f| from . import util as u#
=| u#.f#(2)

u| def f#(x):
u|     return x + 1
f| from . import util
=| util.f#(5)

u| A# = 3
u| def f#():
u|     def g():
u|         return lambda: A# + 1
u|     return g()()
f| from .util import f#
=| f#()

u| D# = 5
u| def f#(x=D#):
u|     return x
f| from .util import f#
=| f#()

u| D# = 5
u| def f#(x: D# = 1):
u|     return x
f| from .util import f#
=| f#.__annotations__['x']

u| def twice#(f):
u|     return lambda *a: 2 * f(*a)
f| from .util import twice#
f| @twice#
f| def g#(x):
f|     return x + 1
=| g#(2)

u| R# = {}
u| def reg#(f):
u|     R#[f.__name__] = f
u|     return f
u| @reg#
u| def h#():
u|     return 3
f| from .util import R#
=| [f() for f in R#.values()]

u| R# = []
u| class B#:
u|     def __init_subclass__(cls):
u|         R#.append(cls)
u| class C#(B#):
u|     v = 2
f| from .util import R#
=| [c.v for c in R#]

u| class M#(type):
u|     def __new__(m, n, b, d):
u|         return super().__new__(m, n, b, {**d, 'w': 9})
u| class C#(metaclass=M#):
u|     v = 2
f| from .util import C#
=| (C#.v, C#.w)

u| from dataclasses import dataclass
u| @dataclass
u| class P#:
u|     b: int = 1
u|     a: int = 2
f| from .util import P#
=| repr(P#(4))

u| from enum import Enum
u| class E#(Enum):
u|     RED = 1
u|     BLUE = 2
f| from .util import E#
=| [e.name for e in E#]

u| T# = {}
u| for i# in range(3):
u|     T#[i#] = i# * 2
f| from .util import T#
=| T#

u| T# = {}
u| T#['x'] = 4
u| T#.update(y=5)
f| from .util import T#
=| T#

u| C# = 1
u| def s#():
u|     global C#
u|     C# = 6
u| s#()
f| from .util import C#
=| C#

u| C# = 1
u| C# += 2
f| from .util import C#
=| C#

u| if 1 < 2:
u|     V# = 3
u| else:
u|     V# = 4
f| from .util import V#
=| V#

u| try:
u|     V# = 1 // 0
u| except ZeroDivisionError:
u|     V# = 8
f| from .util import V#
=| V#

u| (V# := 5)
u| W#, [X#, *Y#] = 1, [2, 3, 4]
f| from .util import V#, Y#
=| (V#, Y#)

u| class O#: pass
u| O#.w = 3
f| from .util import O#
=| O#.w

u| V# = 3
u| def f#():
u|     return globals()['V#']
f| from .util import f#
=| f#()

u| V# = 3
u| def f#(n='V#'):
u|     return eval(n)
f| from .util import f#
=| f#()

u| exec('E# = 4')
f| from . import util
=| util.E#

u| V# = 3
u| W# = vars()['V#']
f| from .util import W#
=| W#

u| V# = 3
f| from . import util
=| getattr(util, 'V' + '#')

u| V# = 3
f| import importlib
=| importlib.import_module('.util', __package__).V#

u| V# = 3
f| import sys
=| sys.modules[__package__ + '.util'].V# if __package__ + '.util' in sys.modules else 0

u| V# = 3
u| _h# = 1
f| def f#():
f|     from .util import V#
f|     return V#
=| f#()

u| V# = 3
f| from .again import V#
=| V#

u| V# = 3
f| from .star import *
=| V#

u| V# = 3
f| from . import util as m#
=| len([n for n in dir(m#) if not n.startswith('_')])

u| class Q#:
u|     @property
u|     def w(self):
u|         return self.v * 2
u|     v = 4
f| from .util import Q#
=| Q#().w

u| import functools
u| @functools.lru_cache
u| def f#(n):
u|     return n if n < 2 else f#(n - 1) + f#(n - 2)
f| from .util import f#
=| f#(6)

u| L# = []
u| A# = L#
f| from .util import L#, A#
f| A#.append(2)
=| L#

u| S# = [1]
f| from . import util
f| util.S#.append(4)
f| util.N# = 3
=| (util.S#, util.N#)

u| class G#:
u|     def __getattr__(self, n):
u|         return n + '!'
f| from .util import G#
=| G#().x

u| def f#():
u|     '''Read me.'''
f| from .util import f#
=| f#.__doc__

u| def f#():
u|     return 1  # one
f| import inspect
f| from .util import f#
=| inspect.getsource(f#)

u| def f#():
u|     return 1
f| from .util import f#
=| f#.__code__.co_firstlineno

u| def f#():
u|     return 1
f| from .util import f#
=| [line for *_, line in f#.__code__.co_lines()]

u| def f#():
u|     '''Kept.'''
u|     return 1
f| from .util import f#
=| f#.__code__.co_consts

u| def f#():
u|     '''Kept.'''
u|     return 1
f| import pydoc
f| from .util import f#
=| pydoc.getdoc(f#)

u| def f#():
u|     return 1
f| from pathlib import Path
=| Path(__file__).read_text()

u| def f#():
u|     return 1
f| from pathlib import Path
f| import re
=| re.findall('def.*', (Path(__file__).parent / 'util.py').read_text())

u| import warnings
u| def f#():
u|     with warnings.catch_warnings(record=True) as w:
u|         warnings.simplefilter('always')
u|         warnings.warn('x')
u|     return w[0].lineno
f| from .util import f#
=| f#()

u| def f#(a, b):
u|     c = a
u|     return c
f| from .util import f#
=| f#.__code__.co_varnames

u| def f#():
u|     x = 1
u|     yield x
u|     yield from (2, 3)
f| from .util import f#
=| list(f#())

u| from collections import namedtuple
u| T# = namedtuple('T#', 'a b')
f| from .util import T#
=| repr(T#(1, 2))

u| H# = 'util:t#'
u| def t#():
u|     return 5
f| import importlib
f| from .util import H#
f| def f#():
f|     m, n = H#.split(':')
f|     return getattr(importlib.import_module('.' + m, __package__), n)()
=| f#()

f| import importlib
=| importlib.import_module('.hid' + 'den', __package__).VALUE

u| import sys
u| def f#():
u|     return sys._getframe().f_lineno
f| from .util import f#
=| f#()

u| def f#():
u|     raise ValueError(3)
f| import traceback
f| from .util import f#
f| def g#():
f|     try:
f|         f#()
f|     except ValueError as e:
f|         return traceback.extract_tb(e.__traceback__)[-1].lineno
=| g#()
"""


def project(seed: int) -> Project:
    """A project of some of the ways, in any order, between definitions that nobody uses."""
    chance = random.Random(seed)
    ways = chance.sample(WAYS.strip().split("\n\n"), chance.randint(1, 5))
    util, features, values = ['"""Helpers."""'], ['"""Features."""'], list[str]()
    for number, way in enumerate(ways):
        for texts, mark in ((util, "u| "), (features, "f| "), (values, "=| ")):
            lines = [line.removeprefix(mark) for line in way.split("\n") if line.startswith(mark)]
            texts.append(_OF_ITS_OWN.sub(str(number), "\n".join(lines)))
            if texts is not values and chance.random() < 0.5:
                texts.append(_OF_ITS_OWN.sub(f"_{number}", UNUSED))
    features.append(f"def preprocess():\n    return [{', '.join(values)}]")
    return {
        "start.py": "from .features import preprocess\ndef go():\n    return preprocess()\n",
        "features.py": "\n".join(features) + "\n",
        "util.py": "\n".join(util) + "\n",
        "again.py": "from .util import *\n",
        "star.py": "from .util import *\n",
        "hidden.py": "VALUE = 4\n",
    }


def edits(text: str) -> Iterator[str]:
    """The text with one comment, docstring, blank line or layout changed, or one mutation of its syntax."""
    yield f"# new\n\n{text}"
    yield ast.unparse(ast.parse(text))  # another layout, no comments
    yield re.sub(r"#.*", "# other", text)
    for match in re.finditer(r"(?<=\n)(?=\S)", text):
        yield f"{text[: match.start()]}\n# between\n{text[match.start() :]}"
    for number, match in enumerate(re.finditer(r"'''|\"\"\"", text)):
        if number % 2 == 0:  # it begins a docstring
            yield f"{text[: match.end()]}x{text[match.end() :]}"
    yield from (ast.unparse(mutant) for mutant in mutants(ast.parse(text)))


def mutants(tree: ast.Module) -> Iterator[ast.Module]:
    """The module with one literal, operator, name or attribute changed; docstrings are not literals here."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    nodes = [node for node in ast.walk(tree) if id(node) not in docstrings]
    for node in nodes:
        changed: Any = copy.copy(node)
        match node:
            case ast.Constant(value=bool(value)):
                changed.value = not value
            case ast.Constant(value=int(value) | float(value)):
                changed.value = value + 1
            case ast.Constant(value=str(value)):
                changed.value = value + "x"
            case ast.Name(id=name):
                changed.id = name + "_"
            case ast.Attribute(attr=name):
                changed.attr = name + "_"
            case ast.arg(arg=name):
                changed.arg = name + "_"
            case ast.keyword(arg=str(name)):
                changed.arg = name + "_"
            case ast.BinOp(op=op):
                changed.op = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            case ast.Compare():
                changed.ops = [ast.Gt() if isinstance(op, ast.Lt) else ast.Lt() for op in node.ops]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                changed.name = name + "_"
            case _:
                continue
        original = dict(vars(node))
        node.__dict__.update(vars(changed))
        yield tree
        node.__dict__.update(original)
