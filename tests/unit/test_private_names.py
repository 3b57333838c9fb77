"""Test that tests replace no private attribute: they use the seams that users have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Functions that replace an attribute, which an argument names, of a module or object.
REPLACING = frozenset({"delattr", "setattr", "__setattr__", "patch", "object"})


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def replaced(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each private attribute that a module replaces.

    A method that calls the same private method of its base class replaces that one.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _replaced_by_call(node)
        context = getattr(node, "ctx", None)
        if isinstance(context, ast.Store | ast.Del):
            yield from _private_parts(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()":
            yield from _private_parts(node)


def _private_parts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the private attributes on the way to what is assigned or deleted."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield node.lineno, node.attr
        node = node.value


def _replaced_by_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else ""
    if isinstance(function, ast.Name):
        name = function.id
    if name not in REPLACING:
        return
    for argument in call.args[:2]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            # The first part is a module's name, such as that of _thread.
            first, *rest = argument.value.split(".")
            for part in rest or [first]:
                if is_private(part):
                    yield call.lineno, part


@pytest.mark.parametrize(
    "program",
    [
        "client._loop = None",
        "client._ports.clock = clock",
        "client._ports['clock'] = clock",
        "first, self.client._loop = found",
        "client._count += 1",
        "client._loop: object = None",
        "del client._loop",
        "with opened() as client._loop: ...",
        "monkeypatch.setattr(client, '_loop', None)",
        "monkeypatch.setattr('package.client.Client._loop', None)",
        "monkeypatch.delattr(client, '_loop')",
        "mock.patch('package._client.Client')",
        "patch.object(client, '_loop')",
        "setattr(client, '_loop', None)",
        "object.__setattr__(client, '_loop', None)",
        "super()._run_once()",
    ],
)
def test_a_replaced_private_attribute_is_found(program: str) -> None:
    assert len(list(replaced(ast.parse(program)))) == 1


@pytest.mark.parametrize(
    "program",
    [
        "self._loop = cls._loop = client._loop",
        "self._loops[client._name] = client",
        "client.loop = None",
        "client.__test__ = False",
        "monkeypatch.setattr(client, 'loop', '_selector')",
        "monkeypatch.setattr('_thread.start_new_thread', refuse)",
        "client.__dict__",
    ],
)
def test_what_is_read_or_public_or_ones_own_is_not(program: str) -> None:
    assert not list(replaced(ast.parse(program)))


def test_no_test_replaces_a_private_attribute() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in ("tests", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in replaced(ast.parse(path.read_text()))
    ]
    assert found == []
