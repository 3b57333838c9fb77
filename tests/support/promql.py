"""Parse as much of PromQL as is needed to check the names in our own files."""

from __future__ import annotations

import re
from typing import NamedTuple

FUNCTIONS = {"absent", "deriv", "max", "min", "rate", "sum", "topk"}
WORDS = {"and", "or", "unless", "bool"}
GROUPING = {"by", "on", "without", "ignoring"}
TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<duration>\[\d+[smhd]\])
  | (?P<number>\d+(?:\.\d+)?)
  | (?P<name>[a-zA-Z_]\w*)
  | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){},=<>])
    )""",
    re.VERBOSE,
)
PAIRS = {")": "(", "}": "{"}


class Selector(NamedTuple):
    """A metric and the matchers of its labels."""

    metric: str
    matchers: tuple[tuple[str, str], ...]


class Named(NamedTuple):
    """The metrics, labels and other names in an expression."""

    selectors: list[Selector]
    grouped: set[str]  # the labels after by, on, without or ignoring


def named(expression: str) -> Named:
    """Return the names in an expression. Raises ValueError if it is invalid."""
    tokens = tokens_of(expression)
    found = Named([], set())
    index = 0
    while index < len(tokens):
        kind, text = tokens[index]
        index += 1
        if kind != "name" or text in FUNCTIONS | WORDS:
            continue
        if text in GROUPING:
            labels, index = _until(tokens, index, "(", ")")
            found.grouped.update(name for kind, name in labels if kind == "name")
        else:
            matchers, index = _until(tokens, index, "{", "}")
            found.selectors.append(Selector(text, _matchers(matchers)))
    return found


def tokens_of(expression: str) -> list[tuple[str, str]]:
    """Return the kind and the text of each token. Raises ValueError."""
    found, at, open_ = [], 0, []
    text = expression.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"{expression!r} can't be read from {text[at:]!r}")
        at = match.end()
        token = match[match.lastgroup]
        found.append((match.lastgroup, token))
        if token in PAIRS.values():
            open_.append(token)
        if token in PAIRS and (not open_ or open_.pop() != PAIRS[token]):
            raise ValueError(f"{expression!r} closes what isn't open")
    if open_:
        raise ValueError(f"{expression!r} leaves {open_} open")
    return found


def _until(
    tokens: list[tuple[str, str]], index: int, first: str, last: str
) -> tuple[list[tuple[str, str]], int]:
    """Return the content of the brackets at an index, and the index after them."""
    if index == len(tokens) or tokens[index][1] != first:
        return [], index
    end = next(i for i in range(index, len(tokens)) if tokens[i][1] == last)
    return tokens[index + 1 : end], end + 1


def _matchers(tokens: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    names = [text for kind, text in tokens if kind == "name"]
    values = [text[1:-1] for kind, text in tokens if kind == "string"]
    return tuple(zip(names, values, strict=True))
