"""What a syntax tree assigns, changes in place and hints at, within one scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .jumps import Scope

HINTS: Final = ("loop_options", "set_max_steps")
_MUTATORS: Final = (
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
)  # fmt: skip


def assigned(body: Iterable[ast.AST]) -> list[str]:
    """The names that statements assign in their own scope, in order."""
    names: set[str] = set()
    for item in body:
        for node in [item, *own_nodes(item)]:
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                names.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
            elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
                names.add(node.name)
            elif isinstance(node, ast.MatchMapping) and node.rest:
                names.add(node.rest)
    return sorted(names)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node, without what belongs to inner functions, classes and comprehensions."""
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield from (item.target for item in ast.walk(node) if isinstance(item, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Scope):
            yield from own_nodes(child)


def binds(*parts: ast.expr) -> bool:
    """Whether an expression assigns by :=, which a thunk could not do for its function."""
    return any(isinstance(item, ast.NamedExpr) for part in parts for item in ast.walk(part))


def in_place(node: ast.AST) -> Iterator[tuple[ast.expr, str, ast.expr, str]]:
    """What is changed in place below a node: the target, how, what it belongs to, the name that this begins with."""
    for item in own_nodes(node):
        if isinstance(item, (ast.Attribute, ast.Subscript)) and isinstance(item.ctx, (ast.Store, ast.Del)):
            target: ast.expr = item
            how, owner = "set", item.value
        elif isinstance(item, ast.Call) and getattr(item.func, "attr", "") in _MUTATORS:
            assert isinstance(item.func, ast.Attribute)
            target, how, owner = item.func, "call", item.func.value
        elif isinstance(item, ast.Call) and getattr(item.func, "id", "") == "next" and item.args:
            target, how, owner = item, "next", item.args[0]
        else:
            continue
        root = root_of(owner)
        if root is not None:
            yield target, how, owner, root


def root_of(node: ast.expr) -> str | None:
    """The name that an attribute or item begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def hint(body: Sequence[ast.stmt]) -> ast.expr | None:
    """The call of a hint at the head of a loop's body (after our own flags), as a copy."""
    for item in body[:2]:
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            called = item.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in HINTS:
                copied = ast.parse(ast.unparse(item.value), mode="eval").body
                for node in ast.walk(copied):
                    ast.copy_location(node, item)
                return copied
    return None
