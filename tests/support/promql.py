"""Parse and evaluate as much of PromQL as our own files need."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

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


Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Scrape = dict[str, Vector]
Value = Vector | float

SUMS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
# Operators that bind less strongly come first.
LEVELS = [{"or"}, {"and", "unless"}, {*COMPARISONS}, {"+", "-"}, {"*", "/"}]


def read_scrape(text: str) -> Scrape:
    """Return the samples that an exporter's text holds, by metric and labels."""
    scrape: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = scrape.setdefault(sample.name, {})
            series[frozenset(sample.labels.items())] = sample.value
    return scrape


def evaluate(expression: str, scrape: Scrape) -> Vector:
    """Return the result of a query. Rates are 0, since there is only one scrape."""
    evaluation = _Evaluation(tokens_of(expression), scrape)
    found = evaluation.binary(0)
    assert evaluation.peek() == "", f"{expression!r} goes on after its end"
    assert isinstance(found, dict)
    return found


class _Evaluation:
    """Evaluates tokens from left to right."""

    def __init__(self, tokens: list[tuple[str, str]], scrape: Scrape) -> None:
        self._tokens, self._scrape, self._at = tokens, scrape, 0

    def peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, *texts: str) -> None:
        assert self._next() in texts, f"expected one of {texts}"

    def binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self._operand()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            sign = self._next()
            kept = self._labels() if self.peek() == "on" else None
            left = _combine(sign, left, self.binary(level + 1), kept)
        return left

    def _operand(self) -> Value:
        kind = self._tokens[self._at][0]
        text = self._next()
        if text == "(":
            inner = self.binary(0)
            self._expect(")")
            return inner
        if kind == "number":
            return float(text)
        assert kind == "name", text
        if text in SUMS:
            return self._aggregate(SUMS[text])
        if self.peek() == "(":
            return self._call(text)
        return self._selector(text)

    def _aggregate(self, combine: Callable[[list[float]], float]) -> Vector:
        by = self._labels() if self.peek() == "by" else frozenset[str]()
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._argument().items():
            kept = frozenset(pair for pair in labels if pair[0] in by)
            groups.setdefault(kept, []).append(value)
        return {labels: combine(values) for labels, values in groups.items()}

    def _argument(self) -> Vector:
        self._expect("(")
        found = self.binary(0)
        self._expect(")")
        assert isinstance(found, dict)
        return found

    def _call(self, name: str) -> Vector:
        if name == "topk":
            self._expect("(")
            count = int(self._next())
            self._expect(",")
            found = self.binary(0)
            self._expect(")")
            assert isinstance(found, dict)
            return dict(sorted(found.items(), key=lambda s: -s[1])[:count])
        found = self._argument()
        if name == "absent":
            return {} if found else {frozenset(): 1.0}
        assert name in ("rate", "deriv"), name
        return dict.fromkeys(found, 0.0)

    def _labels(self) -> frozenset[str]:
        assert self._next() in GROUPING
        self._expect("(")
        names = set()
        while (text := self._next()) != ")":
            names.add(text)
        return frozenset(names - {","})

    def _selector(self, metric: str) -> Vector:
        found = self._scrape.get(metric, {})
        if self.peek() == "{":
            self._expect("{")
            while self.peek() != "}":
                label, sign, text = self._next(), self._next(), self._next()[1:-1]
                found = {k: v for k, v in found.items() if _is(k, label, sign, text)}
                if self.peek() == ",":
                    self._expect(",")
            self._expect("}")
        if self.peek().startswith("["):
            self._next()
        return found


def _is(labels: Labels, label: str, sign: str, text: str) -> bool:
    value = dict(labels).get(label, "")
    matches = re.fullmatch(text, value) is not None if "~" in sign else value == text
    return matches == (sign in ("=", "=~"))


def _combine(sign: str, left: Value, right: Value, on: frozenset[str] | None) -> Value:
    def key(labels: Labels) -> Labels:
        if on is None:
            return labels
        return frozenset(pair for pair in labels if pair[0] in on)

    function: Any = (COMPARISONS | ARITHMETIC).get(sign)
    if isinstance(left, float):
        assert isinstance(right, dict) and sign in ARITHMETIC
        return {labels: function(left, value) for labels, value in right.items()}
    if isinstance(right, float):
        pairs = {labels: (value, right) for labels, value in left.items()}
    else:
        others = {key(labels): value for labels, value in right.items()}
        assert len(others) == len(right), "several series match one"
        if sign in ("and", "unless"):
            return {
                k: v for k, v in left.items() if (key(k) in others) == (sign[0] == "a")
            }
        if sign == "or":
            have = {key(labels) for labels in left}
            return left | {k: v for k, v in right.items() if key(k) not in have}
        pairs = {k: (v, others[key(k)]) for k, v in left.items() if key(k) in others}
    if sign in COMPARISONS:
        return {k: pair[0] for k, pair in pairs.items() if function(*pair)}
    return {k: function(*pair) for k, pair in pairs.items()}
