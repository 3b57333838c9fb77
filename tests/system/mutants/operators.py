"""Define edits of one syntax node inside a named function.

A pattern is Python code, compared as a syntax tree: layout and comments don't count.
``...`` in a pattern matches any expression. As the last argument of a call it matches
the other arguments, and as a body it matches any block and what follows the block.
In a replacement ``...`` stands for what the pattern matched.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast

Kind = Literal["drop", "replace", "always", "never", "move"]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED = ("kind", "type_comment", "type_params")


class Edit(NamedTuple):
    """A change to one node of one function.

    ``drop`` removes a statement, an operand of ``and`` or ``or``, an argument or an
    element. If it removes an ``if``, the statements of its ``else`` stay. ``replace``
    replaces an expression, or consecutive statements. ``always`` and ``never`` replace
    the condition of a branch, a loop or a comprehension by True or False. ``move``
    moves statements in front of another statement.
    """

    kind: Kind
    # ``module:Class.method``, relative to ``kinesumer``. ``module:`` means the whole
    # module.
    where: str
    pattern: str
    new: str = ""

    @property
    def path(self) -> str:
        """Return the module's file, relative to ``kinesumer/``."""
        return self.where.partition(":")[0].replace(".", "/") + ".py"

    def apply(self, module: ast.Module) -> None:
        """Change the module's tree. Raises ValueError unless one node matches."""
        place = self._find(module, self.pattern)
        if self.kind == "drop":
            place.drop()
        elif self.kind == "move":
            moved = place.nodes
            place.drop()
            target = self._find(module, self.new)
            target.replace([*moved, *target.nodes])
        else:
            new = {"always": "True", "never": "False"}.get(self.kind, self.new)
            place.replace(_Fill(place.nodes).visit(ast.Module(_parse(new), [])).body)
        _Collapse().visit(module)

    def _find(self, module: ast.Module, text: str) -> _Place:
        """Return the only place in the function that matches."""
        scopes = _definitions(module, self.where.partition(":")[2])
        if not scopes:
            raise ValueError(f"{self.where}: kinesumer has no such function")
        pattern = _parse(text)
        found = [place for s in scopes for place in _places(s, pattern)]
        if self.kind in ("always", "never"):
            found = [place for place in found if place.field in ("test", "ifs")]
        if len(found) != 1:
            raise ValueError(f"{self.where}: {len(found)} nodes match {text!r}, not 1")
        return found[0]


class _Place(NamedTuple):
    """Consecutive nodes in a list of their parent, or a field's single node."""

    parent: ast.AST
    field: str
    # Index of the first node, or None if the field is not a list.
    first: int | None
    length: int = 1

    @property
    def nodes(self) -> list[ast.AST]:
        value = getattr(self.parent, self.field)
        if self.first is None:
            return [value]
        return cast("list[ast.AST]", value[self.first : self.first + self.length])

    def replace(self, nodes: Sequence[ast.AST]) -> None:
        """Replace the nodes. Only a single statement can replace an expression."""
        if not isinstance(self.nodes[0], ast.stmt):
            nodes = [_value(node) for node in nodes]
        if self.first is None:
            (value,) = nodes
            setattr(self.parent, self.field, value)
        else:
            values = getattr(self.parent, self.field)
            values[self.first : self.first + self.length] = nodes
            if not values and self.field == "body":
                values.append(ast.Pass())

    def drop(self) -> None:
        if self.first is None:
            raise ValueError(f"{ast.unparse(self.nodes[0])!r} can't be dropped")
        first = self.nodes[0]
        self.replace(first.orelse if isinstance(first, ast.If) else [])


class _Fill(ast.NodeTransformer):
    """Replace each ``...`` by given nodes."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        self._nodes = nodes

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.AST]:
        if _is_wildcard(node):
            return self._nodes
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _value(self._nodes[0]) if _is_wildcard(node) else node


class _Collapse(ast.NodeTransformer):
    """Replace each ``and`` or ``or`` with a single operand by this operand."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return node if len(node.values) > 1 else node.values[0]


def _definitions(module: ast.Module, qualname: str) -> list[ast.AST]:
    """Return the definitions of a name. A property has one for each accessor."""
    found: list[ast.AST] = [module]
    for name in qualname.split(".") if qualname else ():
        found = [
            node
            for scope in found
            for node in getattr(scope, "body", [])
            if isinstance(node, _DEFINITIONS) and node.name == name
        ]
    return found


def _places(scope: ast.AST, pattern: list[ast.stmt]) -> Iterator[_Place]:
    """Yield each place below a node that matches a pattern."""
    for field, value in ast.iter_fields(scope):
        if not isinstance(value, list):
            if isinstance(value, ast.AST):
                if _is_match(_value(pattern[0]), value) and len(pattern) == 1:
                    yield _Place(scope, field, None)
                yield from _places(value, pattern)
            continue
        for i, node in enumerate(value):
            run = value[i : i + len(pattern)]
            if isinstance(node, ast.stmt):
                if len(run) == len(pattern) and all(map(_is_match, pattern, run)):
                    yield _Place(scope, field, i, len(pattern))
                    continue
            elif len(pattern) == 1 and _is_match(_value(pattern[0]), node):
                yield _Place(scope, field, i)
            if isinstance(node, ast.AST):
                yield from _places(node, pattern)


def _is_match(pattern: object, node: object) -> bool:
    """Return whether a node, a list of nodes or a value matches a pattern."""
    if _is_wildcard(pattern):
        return True
    if isinstance(pattern, list) and isinstance(node, list):
        if pattern and _is_wildcard(pattern[-1]):
            pattern, node = pattern[:-1], node[: len(pattern) - 1]
        return len(pattern) == len(node) and all(map(_is_match, pattern, node))
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and _have_equal_fields(pattern, node)
    return type(pattern) is type(node) and pattern == node


def _have_equal_fields(pattern: ast.AST, node: object) -> bool:
    is_open = False
    for field in pattern._fields:
        expected = getattr(pattern, field, None)
        if field in _IGNORED or (is_open and expected == []):
            continue
        if not _is_match(expected, getattr(node, field, None)):
            return False
        is_open |= isinstance(expected, list) and any(map(_is_wildcard, expected[-1:]))
    return True


def _is_wildcard(pattern: object) -> bool:
    if isinstance(pattern, ast.Expr):
        pattern = pattern.value
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def _value(node: ast.AST) -> ast.AST:
    """Return a statement's expression if the statement consists of nothing else."""
    return node.value if isinstance(node, ast.Expr) else node


def _parse(code: str) -> list[ast.stmt]:
    try:
        return ast.parse(code).body
    except SyntaxError as error:
        raise ValueError(f"{code!r} is not Python: {error}") from error
