"""Error messages are plain, and say what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import kinesumer

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(kinesumer.__file__).parent
NOT_PLAIN = ("is no ", "is none of", "nobody", "whoever", "had of", "astray")


class Message(NamedTuple):
    """The template of an error message, its values replaced by braces."""

    place: str
    text: str


def template(node: ast.expr) -> str | None:
    """Return the text of a string expression; None if it holds no text of its own."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or "{}" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{template(left) or '{}'}{template(right) or '{}'}"
    return None


def messages() -> Iterator[Message]:
    """Yield the messages of all errors that the package makes."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if not re.fullmatch(r"[A-Z]\w*(Error|Exception|UsageError)", name):
                continue
            for argument in node.args:
                if text := template(argument):
                    yield Message(f"{path.relative_to(ROOT)}:{node.lineno}", text)


@pytest.mark.parametrize("words", NOT_PLAIN)
def test_no_error_message_has_words_that_are_not_plain(words: str) -> None:
    assert not [message for message in messages() if words in message.text]
