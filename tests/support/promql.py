"""Parse and evaluate as much of PromQL as our own files need."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

DASHBOARD = Path(__file__).parents[2] / "observability" / "grafana.json"
TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<duration>\[\d+[smhd]\])
  | (?P<number>\d+(?:\.\d+)?)
  | (?P<name>[a-zA-Z_]\w*)
  | (?P<sign>=~|!=|==|[-*(){},=<>])
    )""",
    re.VERBOSE,
)
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
Scrape = dict[str, Vector]
Value = Vector | float

SUMS: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "-": operator.sub,
    "*": operator.mul,
}
# Operators that bind less strongly come first.
LEVELS = [{"and"}, {*COMPARISONS}, {"-"}, {"*"}]


class Selector(NamedTuple):
    """A metric and the matchers of its labels."""

    metric: str
    matchers: tuple[tuple[str, str], ...]


class Named(NamedTuple):
    """The metrics and labels in an expression."""

    selectors: list[Selector]
    grouped: set[str]  # the labels after by or on


def named(expression: str) -> Named:
    """Return the names in an expression. Fails if it can't be evaluated."""
    return _Evaluation(expression, {}).names


def panel_queries() -> list[str]:
    """Return the queries of the dashboard for Grafana, for all apps and streams."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        re.sub(r"\$(app|stream)\b", ".*", target["expr"])
        for panel in panels
        for target in panel["targets"]
    ]


def is_of_client(query: str) -> bool:
    """Return whether a query asks for what clients themselves measure."""
    return "messaging_" in query


def shows_problems(query: str) -> bool:
    """Return whether a panel's query has results only while there are problems."""
    return query.endswith(" > 0") and "members" not in query


def evaluate(expression: str, scrape: Scrape) -> Vector:
    """Return the result of a query. Rates are 0, since there is only one scrape."""
    return _Evaluation(expression, scrape).result


def read_scrape(text: str) -> Scrape:
    """Return the samples that an exporter's text holds, by metric and labels."""
    scrape: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = scrape.setdefault(sample.name, {})
            series[frozenset(sample.labels.items())] = sample.value
    return scrape


def _tokens_of(expression: str) -> list[tuple[str, str]]:
    """Return the kind and the text of each token."""
    found, at, text = [], 0, expression.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match and match.lastgroup, f"{text!r} can't be read from {text[at:]!r}"
        at = match.end()
        found.append((match.lastgroup, match[match.lastgroup]))
    return found


class _Evaluation:
    """Evaluates an expression from left to right, and notes the names in it."""

    def __init__(self, expression: str, scrape: Scrape) -> None:
        self._tokens, self._scrape, self._at = _tokens_of(expression), scrape, 0
        self.names = Named([], set())
        self.result = self._vector(0)
        assert self._peek() == "", f"{expression!r} goes on after its end"

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        assert self._peek(), "the expression ends early"
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, *texts: str) -> None:
        assert self._next() in texts, f"expected one of {texts}"

    def _vector(self, level: int) -> Vector:
        found = self._binary(level)
        assert isinstance(found, dict)
        return found

    def _binary(self, level: int) -> Value:
        if level == len(LEVELS):
            return self._operand()
        left = self._binary(level + 1)
        while self._peek() in LEVELS[level]:
            sign = self._next()
            kept = self._labels() if self._peek() == "on" else None
            left = _combine(sign, left, self._binary(level + 1), kept)
        return left

    def _operand(self) -> Value:
        text = self._next()
        kind = self._tokens[self._at - 1][0]
        if text == "(":
            inner = self._binary(0)
            self._expect(")")
            return inner
        if kind == "number":
            return float(text)
        assert kind == "name", text
        if text in SUMS:
            return self._aggregate(SUMS[text])
        if self._peek() == "(":
            return self._call(text)
        return self._selector(text)

    def _aggregate(self, combine: Callable[[list[float]], float]) -> Vector:
        by = self._labels() if self._peek() == "by" else frozenset[str]()
        groups: dict[Labels, list[float]] = {}
        self._expect("(")
        for labels, value in self._vector(0).items():
            kept = frozenset(pair for pair in labels if pair[0] in by)
            groups.setdefault(kept, []).append(value)
        self._expect(")")
        return {labels: combine(values) for labels, values in groups.items()}

    def _call(self, name: str) -> Vector:
        self._expect("(")
        number = 0.0
        if name in ("topk", "histogram_quantile"):
            number = float(self._next())
            self._expect(",")
        found = self._vector(0)
        self._expect(")")
        if name == "topk":
            return dict(sorted(found.items(), key=lambda s: -s[1])[: int(number)])
        if name == "histogram_quantile":  # of rates, which are 0 here
            return {frozenset(p for p in k if p[0] != "le"): 0.0 for k in found}
        if name == "absent":
            return {} if found else {frozenset(): 1.0}
        assert name in ("rate", "deriv"), name
        return dict.fromkeys(found, 0.0)

    def _labels(self) -> frozenset[str]:
        self._expect("by", "on")
        self._expect("(")
        names = set()
        while (text := self._next()) != ")":
            names.add(text)
        names.discard(",")
        self.names.grouped.update(names)
        return frozenset(names)

    def _selector(self, metric: str) -> Vector:
        found = self._scrape.get(metric, {})
        matchers = []
        if self._peek() == "{":
            while self._next() != "}":  # skips the bracket, and then each comma
                label, sign, text = self._next(), self._next(), self._next()[1:-1]
                matchers.append((label, text))
                found = {k: v for k, v in found.items() if _is(k, label, sign, text)}
                assert self._peek() in (",", "}")
        self.names.selectors.append(Selector(metric, tuple(matchers)))
        if self._peek().startswith("["):
            self._next()
        return found


def _is(labels: Labels, label: str, sign: str, text: str) -> bool:
    value = dict(labels).get(label, "")
    if sign == "=~":
        return re.fullmatch(text, value) is not None
    assert sign in ("=", "!="), sign
    return (value == text) == (sign == "=")


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
        pairs = {k: (v, others[key(k)]) for k, v in left.items() if key(k) in others}
    if sign == "and":
        return {labels: left[labels] for labels in pairs}
    if sign in COMPARISONS:
        return {k: pair[0] for k, pair in pairs.items() if function(*pair)}
    return {k: function(*pair) for k, pair in pairs.items()}
