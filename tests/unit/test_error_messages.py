"""Test that error messages are plain, and say what to do."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import kinesumer
from kinesumer import errors

ROOT = Path(kinesumer.__file__).parent
NOT_PLAIN = ("is no ", "is none of", "nobody", "whoever", "had of", "astray")

FOR_USERS = {
    name
    for name, error in vars(errors).items()
    if isinstance(error, type)
    and issubclass(error, errors.KinesumerError)
    # The engine handles these errors, and finally raises a different one.
    and not issubclass(error, errors.TransientError | errors.ShardMissingError)
} | {"BadParameter", "ImportError", "UsageError"}
PUBLIC = {"model", "producer"}
"""Packages whose ValueErrors and TypeErrors reach users unchanged."""

IMPERATIVES = """
    add allow begin call change check choose compare consume correct create decode
    delete drop enable exclude expect filter give import increase install iterate
    keep leave let list lower make name open pass pause pip print put raise read
    reload remove rename renew repair repeat restart resume run seek set show start
    stop take try update upgrade use wait write
""".split()
ADVICE = re.compile(
    r"\bmust\b|(?:^|[:;,.?(] |\b(?:and|or|then) )"
    rf"(?:first |please )?(?:{'|'.join(IMPERATIVES)})\b|\{{(?:advice|hint)\}}",
    re.IGNORECASE,
)
"""Matches messages with advice: "must", or an imperative that begins a clause."""


class Message(NamedTuple):
    """The template of an error message, its values replaced by braces."""

    place: str
    error: str
    text: str


def template(node: ast.expr) -> str | None:
    """Return the text of a string expression, or None if it has no literal text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(template(part) or "{}" for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name)):
            return f"{{{name}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{template(left) or '{}'}{template(right) or '{}'}"
    return None


@cache
def messages() -> list[Message]:
    """Return the messages of all errors that the package makes."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if not re.fullmatch(r"[A-Z]\w*(Error|Exception)|BadParameter", name):
                continue
            for argument in node.args:
                text = template(argument)
                if text and " " in text:
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    found.append(Message(place, name, text))
    return found


def is_for_users(message: Message) -> bool:
    """Return whether users see a message. Other errors are handled by code."""
    package = message.place.partition("/")[0]
    is_plain = message.error in ("ValueError", "TypeError")
    return message.error in FOR_USERS or (is_plain and package in PUBLIC)


def test_no_error_message_has_words_that_are_not_plain() -> None:
    assert not [m for m in messages() if any(words in m.text for words in NOT_PLAIN)]


def test_each_error_message_for_users_says_what_to_do() -> None:
    for_users = [message for message in messages() if is_for_users(message)]
    assert len(for_users) > 200
    assert not [message for message in for_users if not ADVICE.search(message.text)]
