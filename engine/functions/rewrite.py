"""Control flow as calls: the syntax tree of a function with `if`, `while`, `for`, `and` … handed to operators.

Each block becomes a function of its own; what it assigns is the state that a getter reads and a setter writes. Every
node keeps its place in the user's file, so tracebacks, debuggers and JAX's own source lines need no map.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .jumps import FlaggedFor, Scope, expression, lowered, statement
from .source import Definition, parameters

_HINTS: Final = ("loop_options", "set_max_steps")
_MUTATORS: Final = (
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
)  # fmt: skip


def rewritten(node: Definition, owner: str | None) -> ast.FunctionDef:
    """The function with its control flow as operator calls. `owner` is the class whose private names it may use."""
    if isinstance(node, ast.Lambda):
        answer = ast.copy_location(ast.Return(node.body), node.body)
        tree = ast.FunctionDef("ag__made", node.args, [answer], [])
        ast.copy_location(tree, node)
    else:
        tree = node
        tree.name = "ag__made"  # its own name is free in it: a global, or a cell of the function around
        tree.decorator_list = []
        tree.returns = None
    for arg in ast.walk(tree.args):
        if isinstance(arg, ast.arg):
            arg.annotation = None
    # Defaults are taken from the function itself: here they only keep their number.
    tree.args.defaults = [ast.Constant(None) for _ in tree.args.defaults]
    tree.args.kw_defaults = [None if item is None else ast.Constant(None) for item in tree.args.kw_defaults]
    shared = [item for item in _own_nodes(tree) if isinstance(item, (ast.Global, ast.Nonlocal))]
    tree.body = lowered(_Hoisted().body(tree))
    parameter_names = parameters(node)
    outer = {name for item in shared for name in item.names}
    globals_ = {name for item in shared if isinstance(item, ast.Global) for name in item.names}
    blocks = [item for item in _own_nodes(tree) if isinstance(item, (ast.If, ast.For, ast.While))]
    state = {name for block in blocks for name in _assigned([block])}
    change = _Rewrite(state, outer, globals_, owner, parameter_names[0] if parameter_names else None)
    body = [converted for item in tree.body for converted in change.statements(item)]
    unset = [name for name in sorted(state) if name not in outer and name not in parameter_names]
    head = [statement(f"{name} = ag__.Unset({name!r})", tree.body[0]) for name in unset]
    tree.body = [*shared, *head, *body]
    return tree


class _Hoisted(ast.NodeTransformer):
    """Takes `global` and `nonlocal` out of the blocks, and annotations off local names, which no block could share."""

    def body(self, tree: ast.FunctionDef) -> list[ast.stmt]:
        statements = [visited for item in tree.body if (visited := self.visit(item)) is not None]
        return statements or [ast.copy_location(ast.Pass(), tree.body[0])]

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        assignment = ast.Assign([node.target], node.value) if node.value is not None else ast.Pass()
        return ast.copy_location(assignment, node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        return node if isinstance(node, Scope) else super().generic_visit(node)


class _Rewrite(ast.NodeTransformer):
    def __init__(
        self, state: set[str], shared: set[str], globals_: set[str], owner: str | None, first: str | None
    ) -> None:
        self.state = state
        self.globals = globals_
        self.shared = shared
        self.owner = owner
        self.first = first
        self.count = 0

    def statements(self, node: ast.stmt) -> list[ast.stmt]:
        replacement = self.visit(node)
        return replacement if isinstance(replacement, list) else [replacement]

    # --- scopes of their own: converted when they are called -----------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    # --- statements ----------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = _assigned([node])
        test = self.visit(node.test)
        yes, no, get, put = (self._new(word) for word in ("then", "else", "get", "set"))
        call = expression(
            f"ag__.if_(0, {yes}, {no}, {get}, {put}, {tuple(names)!r}, {self._changes(node, names)})", node
        )
        assert isinstance(call, ast.Call)
        call.args[0] = test
        return [
            self._function(yes, "", names, node.body, node),
            self._function(no, "", names, node.orelse, node),
            *self._accessors(get, put, names, node),
            ast.copy_location(ast.Expr(call), node),
        ]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        names = _assigned([node])
        test, body, get, put = (self._new(word) for word in ("test", "while", "get", "set"))
        call = self._loop_call(
            f"ag__.while_({test}, {body}, {get}, {put}, {tuple(names)!r}, {self._changes(node, names)}, 0)", node
        )
        answer = ast.copy_location(ast.Return(node.test), node.test)
        return [
            self._function(test, "", _assigned([node.test]), [answer], node),
            self._function(body, "", names, node.body, node),
            *self._accessors(get, put, names, node),
            call,
        ]

    def visit_FlaggedFor(self, node: FlaggedFor) -> list[ast.stmt]:
        return self.visit_For(node)

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        names = _assigned([node])
        body, get, put = (self._new(word) for word in ("for", "get", "set"))
        flags = node.flags if isinstance(node, FlaggedFor) else ()
        test = f"lambda: ag__.none_of({', '.join(flags)})" if flags else "None"
        call = f"ag__.for_(0, {body}, {test}, {get}, {put}, {tuple(names)!r}, {self._changes(node, names)}, 0)"
        loop_call = self._loop_call(call, node)
        assert isinstance(loop_call, ast.Expr)
        assert isinstance(loop_call.value, ast.Call)
        loop_call.value.args[0] = self.visit(node.iter)
        take = ast.copy_location(ast.Assign([node.target], expression("ag__item", node.target)), node.target)
        return [
            self._function(body, "ag__item", names, [take, *node.body], node),
            *self._accessors(get, put, names, node),
            loop_call,
        ]

    def _loop_call(self, text: str, node: ast.While | ast.For) -> ast.stmt:
        """A loop operator's call; its last argument gives the hint at the head of the body."""
        call_statement = statement(text, node)
        assert isinstance(call_statement, ast.Expr)
        assert isinstance(call_statement.value, ast.Call)
        hint_call = _hint(node.body)
        call_statement.value.args[-1] = expression("None", node)
        if hint_call is not None:
            lazy = expression("lambda: 0", node)
            assert isinstance(lazy, ast.Lambda)
            lazy.body = hint_call
            call_statement.value.args[-1] = lazy
        return call_statement

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        return [*self._guards(node), self.generic_visit(node)]  # type: ignore[list-item]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return [*self._guards(node), self.generic_visit(node)]  # type: ignore[list-item]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        guards = self._guards(node)
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.target.id in self.state:
            guards.append(statement(f"ag__.load({node.target.id})", node))
        return [*guards, node]

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in self.state:
                statements.append(statement(f"{target.id} = ag__.Unset({target.id!r})", node))
            else:
                statements.append(ast.copy_location(ast.Delete([target]), node))
        return statements

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        assertion = statement("ag__.assert_(lambda: 0, lambda: 0)", node)
        parts = node.msg.values if isinstance(node.msg, ast.JoinedStr) else []
        shown = [(part, ast.unparse(part.value)) for part in parts if isinstance(part, ast.FormattedValue)]
        assert isinstance(assertion, ast.Expr)
        call = assertion.value
        assert isinstance(call, ast.Call)
        for index, part in enumerate((node.test, node.msg)):
            lazy = call.args[index]
            assert isinstance(lazy, ast.Lambda)
            lazy.body = self.visit(part) if part is not None else expression("None", node)
        for value, name in shown:
            self._show_operand(value, name)
        return assertion

    def _show_operand(self, part: ast.FormattedValue, name: str) -> None:
        """Let an operator show a value of an f-string."""
        call = expression(f"ag__.formatted(0, {name!r}, {part.conversion}, '')", part)
        assert isinstance(call, ast.Call)
        call.args[0] = part.value
        if part.format_spec is not None:
            call.args[3] = part.format_spec
        part.value, part.conversion, part.format_spec = call, -1, None

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        return [statement("ag__.may_raise()", node), self.generic_visit(node)]  # type: ignore[list-item]

    # --- expressions ---------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.state and not node.id.startswith("ag__"):
            return expression(f"ag__.load({node.id})", node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self.owner and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{self.owner.lstrip('_')}{node.attr}"
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if _binds(*node.values[1:]):
            plain = self._plain(node)
            assert isinstance(plain, ast.BoolOp)
            plain.values[:-1] = [self._certain(value, "an `and` or `or`") for value in plain.values[:-1]]
            return plain
        word = "and_" if isinstance(node.op, ast.And) else "or_"
        return self._lazy(f"ag__.{word}", node.values, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        call = expression("ag__.not_(0)", node)
        assert isinstance(call, ast.Call)
        call.args = [node.operand]
        return call

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        if _binds(node.body, node.orelse):
            plain = self._plain(node)
            assert isinstance(plain, ast.IfExp)
            plain.test = self._certain(plain.test, "a ternary")
            return plain
        return self._lazy("ag__.choose", [node.test, node.body, node.orelse], node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        single = len(node.ops) == 1 and not isinstance(node.ops[0], (ast.In, ast.NotIn))
        if single or _binds(*node.comparators[1:]):
            return self.generic_visit(node)
        words = tuple(type(op).__name__ for op in node.ops)
        call = self._lazy("ag__.compare", [node.left, *node.comparators], node, certain=2)
        call.args.insert(0, expression(repr(words), node))
        return call

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and self.first:
            return expression(f"super(__class__, {self.first})", node)
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", None) == "ag__":
            return node  # an operator of ours
        wrapped = expression("ag__.callee(0)", node.func)
        assert isinstance(wrapped, ast.Call)
        wrapped.args = [node.func]
        node.func = wrapped
        return node

    def _plain(self, node: ast.expr) -> ast.expr:
        visited = self.generic_visit(node)
        assert isinstance(visited, ast.expr)
        return visited

    def _certain(self, value: ast.expr, what: str) -> ast.expr:
        """A value on which Python itself has to decide."""
        call = expression(f"ag__.certain(0, {what!r})", value)
        assert isinstance(call, ast.Call)
        call.args[0] = value
        return call

    def _lazy(self, operator: str, parts: Sequence[ast.expr], node: ast.expr, certain: int = 1) -> ast.Call:
        """An operator's call with its parts as thunks; where := stands in the first, which run anyway, as values."""
        call = expression(f"{operator}()", node)
        assert isinstance(call, ast.Call)
        for index, part in enumerate(parts):
            if index < certain and _binds(*parts[:certain]):
                argument = expression("ag__.value(0)", part)
                assert isinstance(argument, ast.Call)
                argument.args = [self.visit(part)]
            else:
                argument = expression("lambda: 0", part)
                assert isinstance(argument, ast.Lambda)
                argument.body = self.visit(part)
            call.args.append(argument)
        return call

    # --- blocks as functions -------------------------------------------------------------------------------------

    def _new(self, word: str) -> str:
        self.count += 1
        return f"ag__{word}_{self.count}"

    def _function(
        self,
        name: str,
        parameter: str,
        names: Sequence[str],
        body: Sequence[ast.stmt],
        node: ast.AST,
    ) -> ast.stmt:
        block = statement(f"def {name}({parameter}): pass", node)
        assert isinstance(block, ast.FunctionDef)
        inside = [*self._declared(names, node), *(new for item in body for new in self.statements(item))]
        block.body = inside or block.body
        return block

    def _declared(self, names: Sequence[str], node: ast.AST) -> list[ast.stmt]:
        ours = [name for name in names if name not in self.globals]
        shared = [name for name in names if name in self.globals]
        declarations = [statement(f"nonlocal {', '.join(ours)}", node)] if ours else []
        return declarations + ([statement(f"global {', '.join(shared)}", node)] if shared else [])

    def _accessors(self, get: str, put: str, names: Sequence[str], node: ast.AST) -> list[ast.stmt]:
        reads = ", ".join(names) + ("," if len(names) == 1 else "")
        getter = statement(f"def {get}(): return ({reads})", node)
        setter = statement(f"def {put}(ag__values): pass", node)
        assert isinstance(setter, ast.FunctionDef)
        if names:
            setter.body = [*self._declared(names, node), statement(f"({reads}) = ag__values", node)]
        return [getter, setter]

    def _guards(self, node: ast.stmt) -> list[ast.stmt]:
        """What goes before a statement: operators that refuse its changes where a block of the graph hides them."""
        guards: dict[str, ast.stmt] = {}
        for target, how, owner, root in _in_place(node):
            call = f"ag__.changes({ast.unparse(target)!r}, {how!r}, {root!r}, lambda: 0)"
            guards.setdefault(call, self._guard(call, owner, node))
        for name in _assigned([node]):
            if name in self.shared:
                call = f"ag__.changes({name!r}, 'name', {name!r}, lambda: 0)"
                guards[call] = self._guard(call, ast.Name(name, ast.Load()), node)
        return list(guards.values())

    def _guard(self, call: str, owner: ast.expr, node: ast.stmt) -> ast.stmt:
        guard = statement(call, node)
        assert isinstance(guard, ast.Expr)
        assert isinstance(guard.value, ast.Call)
        thunk = guard.value.args[3]
        assert isinstance(thunk, ast.Lambda)
        thunk.body = self.visit(expression(ast.unparse(owner), node))
        return guard

    def _changes(self, node: ast.AST, names: Sequence[str]) -> str:
        """Source of a tuple of (what is changed in place, how, a thunk of its owner): staging refuses those."""
        sources: dict[str, str] = {}
        for target, how, owner, root in _in_place(node):
            if root in names:  # made within the block: nobody outside sees it
                continue
            if any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(owner)):
                owner = ast.Name(root)  # it has no value yet: judged by what it is part of
            sources[f"({ast.unparse(target)!r}, {how!r}, lambda: {ast.unparse(owner)})"] = ""
        for name in names:
            if name in self.globals:
                sources[f"({name!r}, 'global', lambda: None)"] = ""
        return f"({', '.join(sources)}{',' if sources else ''})"


# --- what a syntax tree assigns, changes in place and hints at, within one scope ---


def _assigned(body: Iterable[ast.AST]) -> list[str]:
    """The names that statements assign in their own scope, in order."""
    names: set[str] = set()
    for item in body:
        for node in [item, *_own_nodes(item)]:
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


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is below a node, without what belongs to inner functions, classes and comprehensions."""
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        yield from (item.target for item in ast.walk(node) if isinstance(item, ast.NamedExpr))
        return
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Scope):
            yield from _own_nodes(child)


def _binds(*parts: ast.expr) -> bool:
    """Whether an expression assigns by :=, which a thunk could not do for its function."""
    return any(isinstance(item, ast.NamedExpr) for part in parts for item in ast.walk(part))


def _in_place(node: ast.AST) -> Iterator[tuple[ast.expr, str, ast.expr, str]]:
    """What is changed in place below a node: the target, how, what it belongs to, the name that this begins with."""
    for item in _own_nodes(node):
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
        root = _root_of(owner)
        if root is not None:
            yield target, how, owner, root


def _root_of(node: ast.expr) -> str | None:
    """The name that an attribute or item begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _hint(body: Sequence[ast.stmt]) -> ast.expr | None:
    """The call of a hint at the head of a loop's body (after our own flags), as a copy."""
    for item in body[:2]:
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            called = item.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in _HINTS:
                copied = ast.parse(ast.unparse(item.value), mode="eval").body
                for node in ast.walk(copied):
                    ast.copy_location(node, item)
                return copied
    return None
