"""Names that say nothing, and class names that stand for two things: `make lint` finds both from the syntax trees.

    python .ci/check_names.py [PATH ...]

Looks at product code, or at what is named, prints what is wrong, one line each, and exits with 1 if there is anything.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (
    "components", "console", "data", "engine", "metadata", "pipelines", "report", "serving", "examples", "benchmarks",
)  # fmt: skip
SAY_NOTHING = frozenset({"found", "given", "made", "told", "place", "own", "one", "thing", "things"})

# Where the word is the thing: (file, name), with the reason.
MEANT: dict[tuple[str, str], str] = {
    ("pipelines/resolvers/loops.py", "found"): "a parameter of Spans, stored in pipelines and part of cache keys",
}

# One name, two things, on purpose: an artifact type, and the value that its payload holds, as users import them.
TWO_THINGS = frozenset({"AnalyzerCache", "Anomalies", "ExamplesDiff", "Model", "Schema", "Statistics"})


def bindings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and name of everything that is given a name: variables, parameters, attributes, functions, imports."""
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname:
            yield node.lineno, node.asname
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.lineno, node.name


def product_files(paths: list[str]) -> list[Path]:
    """Python files below the paths; all product code where none is named."""
    tops = [Path(path) for path in paths] or [*(ROOT / package for package in PRODUCT), *ROOT.glob("*.py")]
    return sorted(file for top in tops for file in ([top] if top.is_file() else top.rglob("*.py")))


def main(arguments: list[str]) -> int:
    """Print what is wrong, one line each."""
    gc.disable()  # a tree has no cycles, and looking through a million of its nodes is most of the time
    problems = []
    defined: dict[str, list[str]] = defaultdict(list)
    for file in product_files(arguments):
        name = file.resolve().relative_to(ROOT).as_posix()
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        problems += [
            f"{name}:{line}: {word} says nothing of what it holds"
            for line, word in bindings(nodes)
            if word.strip("_") in SAY_NOTHING and (name, word) not in MEANT
        ]
        if not name.startswith(("examples/", "benchmarks/")):  # each is a project of its own
            for node in nodes:
                if isinstance(node, ast.ClassDef) and node.name not in TWO_THINGS:
                    defined[node.name].append(f"{name}:{node.lineno}")
    problems += [
        f"class {name} stands for several things: {', '.join(lines)}"
        for name, lines in defined.items()
        if len(lines) > 1
    ]
    print("\n".join(sorted(problems)) or "names: nothing to say against them")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
