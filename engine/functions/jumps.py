"""return, break and continue as flags: after this, every block of a function ends at its end.

What follows a branch that ends (`if c: return a` … rest) moves into the other branch; what follows one that may end is
guarded by the flags. The same idea as in TensorFlow's AutoGraph (Moldovan et al., 2019, section 7.2).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

RETURNED: Final = "ag__returned"
VALUE: Final = "ag__value"

Scope = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Loop = (ast.For, ast.While)
N = TypeVar("N", bound=ast.AST)


@dataclass(frozen=True)
class Flags:
    """The names of the variables that stand for `break` and `continue` in a rewritten loop."""

    broke: str
    skipped: str


class FlaggedFor(ast.For):
    """A for loop that goes on only while none of `flags` is set."""

    flags: tuple[str, ...] = ()


def expression(text: str, at: ast.AST) -> ast.expr:
    """Parse an expression and give it the place of a node of the user's."""
    return _placed(ast.parse(text, mode="eval").body, at)


def statement(text: str, at: ast.AST) -> ast.stmt:
    """Parse a statement and give it the place of a node of the user's."""
    return _placed(ast.parse(text).body[0], at)


def _placed(tree: N, at: ast.AST) -> N:
    for node in ast.walk(tree):
        ast.copy_location(node, at)
        if isinstance(node, (ast.expr, ast.stmt)):  # a call that spans lines would count as on its last
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
    return tree


def lowered(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """A function's body without return, break and continue inside of its branches and loops."""
    body = [_Bindings().visit(item) for item in body]
    returns = any(_contains(item, ast.Return, into_loops=True) for item in body if not isinstance(item, ast.Return))
    always = _ends(body)
    statements = _Jumps(returns).block(body, None)
    if not returns:
        return statements
    first, last = body[0], body[-1]
    head = [statement(f"{RETURNED} = False", first), statement(f"{VALUE} = ag__.NO_VALUE", first)]
    tail = statement(f"return ag__.returned({RETURNED}, {VALUE}, {always})", last)
    return [*head, *statements, tail]


class _Bindings(ast.NodeTransformer):
    """`while (n := f()): …` as `while True:` with a break: what := assigns then belongs to the body."""

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        if any(isinstance(item, ast.NamedExpr) for item in ast.walk(node.test)):
            leave = ast.copy_location(ast.Break(), node.test)
            test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
            node.body.insert(0, ast.copy_location(ast.If(test, [*node.orelse, leave], []), node.test))
            node.test, node.orelse = ast.copy_location(ast.Constant(True), node.test), []
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, Scope) else super().generic_visit(node)


class _Jumps:
    def __init__(self, returns: bool) -> None:
        self.returns = returns
        self.loops = 0

    def block(self, body: Sequence[ast.stmt], loop: Flags | None) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for index, item in enumerate(body):
            rest = body[index + 1 :]
            if isinstance(item, ast.Return) and self.returns:
                value = item.value or ast.copy_location(ast.Constant(None), item)
                statements.append(ast.copy_location(ast.Assign([_name(VALUE, item)], value), item))
                return [*statements, statement(f"{RETURNED} = True", item)]
            if isinstance(item, (ast.Break, ast.Continue)) and loop is not None:
                flag = loop.broke if isinstance(item, ast.Break) else loop.skipped
                return [*statements, statement(f"{flag} = True", item)]
            flags = self.flags(item, loop)  # read before the item is lowered
            if isinstance(item, Loop):
                statements += self.loop(item)
            elif isinstance(item, ast.If) and self.jumps(item):
                if _ends(item.body):
                    return [*statements, self.branch(item, item.body, [*item.orelse, *rest], loop)]
                if item.orelse and _ends(item.orelse):
                    return [*statements, self.branch(item, [*item.body, *rest], item.orelse, loop)]
                statements.append(self.branch(item, item.body, item.orelse, loop))
            else:
                statements.append(self.inside(item, loop))
            if flags and rest:
                return [*statements, self.guarded(flags, rest, loop, item)]
        return statements

    def branch(
        self, item: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], loop: Flags | None
    ) -> ast.stmt:
        return ast.copy_location(ast.If(item.test, self.block(body, loop), self.block(orelse, loop)), item)

    def guarded(self, flags: Sequence[str], rest: Sequence[ast.stmt], loop: Flags | None, at: ast.AST) -> ast.stmt:
        test = expression(f"ag__.none_of({', '.join(flags)})", at)
        return ast.copy_location(ast.If(test, self.block(rest, loop), []), at)

    def inside(self, item: ast.stmt, loop: Flags | None) -> ast.stmt:
        """A compound statement with its blocks lowered; anything else as it is."""
        if isinstance(item, Scope):
            return item
        flags = self.flags(item, loop)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(getattr(item, name, None), list):
                setattr(item, name, self.block(getattr(item, name), loop))
        for case in [*getattr(item, "handlers", ()), *getattr(item, "cases", ())]:
            case.body = self.block(case.body, loop)
        if isinstance(item, ast.Try) and item.orelse and flags:
            test = expression(f"ag__.none_of({', '.join(flags)})", item)
            item.orelse = [ast.copy_location(ast.If(test, item.orelse, []), item)]
        return item

    def loop(self, item: ast.For | ast.While) -> list[ast.stmt]:
        self.loops += 1
        flags = Flags(f"ag__broke_{self.loops}", f"ag__skipped_{self.loops}")
        breaks = any(_contains(inner, ast.Break) for inner in item.body)
        skips = any(_contains(inner, ast.Continue) for inner in item.body)
        returns = self.returns and any(_contains(inner, ast.Return, into_loops=True) for inner in item.body)
        body = self.block(item.body, flags)
        # `continue` is over with its item, so its flag begins anew at each; `break` and `return` last to the loop's
        # end.
        if skips:
            body.insert(0, statement(f"{flags.skipped} = False", item))
        ends = ([flags.broke] if breaks else []) + ([RETURNED] if returns else [])
        statements: list[ast.stmt] = [statement(f"{flags.broke} = False", item)] if breaks else []
        if isinstance(item, ast.While):
            test = item.test
            if ends:
                going = expression(f"ag__.none_of({', '.join(ends)})", item)
                # The flags come first: after a break Python evaluates the test no more, and it may raise by then.
                test = ast.copy_location(ast.BoolOp(ast.And(), [going, test]), item)
            statements.append(ast.copy_location(ast.While(test, body, []), item))
        else:
            loop = FlaggedFor(item.target, item.iter, body, [])
            loop.flags = tuple(ends)
            statements.append(ast.copy_location(loop, item))
        if item.orelse:
            statements += [self.guarded(ends, item.orelse, None, item)] if ends else self.block(item.orelse, None)
        return statements

    def jumps(self, item: ast.stmt) -> bool:
        return _contains(item, (ast.Break, ast.Continue)) or (
            self.returns and _contains(item, ast.Return, into_loops=True)
        )

    def flags(self, item: ast.stmt, loop: Flags | None) -> list[str]:
        """The flags that a statement may set."""
        set_flags = [RETURNED] if self.returns and _contains(item, ast.Return, into_loops=True) else []
        if loop is not None and not isinstance(item, Loop):
            set_flags += [loop.broke] if _contains(item, ast.Break) else []
            set_flags += [loop.skipped] if _contains(item, ast.Continue) else []
        return set_flags


def _name(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Store()), at)


def _contains(item: ast.AST, kinds: type[ast.AST] | tuple[type[ast.AST], ...], *, into_loops: bool = False) -> bool:
    """Whether there is such a statement in this scope; break and continue of inner loops are their own."""
    if isinstance(item, kinds):
        return True
    if isinstance(item, Scope) or (isinstance(item, Loop) and not into_loops):
        return False
    return any(_contains(child, kinds, into_loops=into_loops) for child in ast.iter_child_nodes(item))


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether every path through a block jumps, raises or never gets to its end."""
    return any(map(_leaves, body))


def _leaves(item: ast.stmt) -> bool:
    match item:
        case ast.Return() | ast.Break() | ast.Continue() | ast.Raise():
            return True
        case ast.If(body=body, orelse=orelse):
            return _ends(body) and _ends(orelse)
        case ast.With(body=body):
            return _ends(body)
        case ast.While(test=ast.Constant(value=endless), body=body):
            return bool(endless) and not any(_contains(inner, ast.Break) for inner in body)
        case ast.Try(body=body, orelse=orelse, handlers=handlers, finalbody=final):
            return _ends(final) or (_ends([*body, *orelse]) and all(_ends(each.body) for each in handlers))
        case ast.Match(cases=[*cases, ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None) as last]):
            return all(_ends(each.body) for each in [*cases, last])
    return False
