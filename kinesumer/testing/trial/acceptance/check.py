"""A check, how it fails, and the report of a run, also as JSON and Markdown.

The checks don't use ``assert``, since Python's option -O removes it. Reports hold no
credentials, and no account ids.
"""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, Literal, NamedTuple, ParamSpec

from kinesumer.model.incidents import MAX_ERROR_LETTERS
from kinesumer.ops.cli.console import REPORT_VERSION
from kinesumer.runtime.text import shorten

PACKAGES = ("kinesumer", "aiobotocore", "botocore", "aiohttp", "moto", "pyspark")
MARKS = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}

Verdict = Literal["passed", "failed", "skipped"]
AT_ONCE = 50  # the number of calls that a check of races or throttling makes at once

P = ParamSpec("P")


class CheckFailedError(Exception):
    """A check found something else than the library promises."""


class CheckSkippedError(Exception):
    """The check couldn't be made. The text says why."""


class Check(NamedTuple, Generic[P]):
    """A check of one property, with the number of shards that it uses."""

    name: str
    run: Callable[P, Awaitable[None]]
    # Every shard that exists at some time during the check, for the costs.
    shards: int


def registrar(
    checks: list[Check[P]],
) -> Callable[[int], Callable[[Callable[P, Awaitable[None]]], Check[P]]]:
    """Return a decorator that adds a function to a list of checks.

    The decorator's argument is the number of shards. The check's name is the function's
    name.
    """

    def check(shards: int) -> Callable[[Callable[P, Awaitable[None]]], Check[P]]:
        def add(run: Callable[P, Awaitable[None]]) -> Check[P]:
            name = getattr(run, "__name__", "").replace("_", " ")
            checks.append(Check(name, run, shards))
            return checks[-1]

        return add

    return check


def expect(holds: bool, otherwise: str) -> None:
    """Raise CheckFailedError with a text unless a condition holds."""
    if not holds:
        raise CheckFailedError(otherwise)


def expect_equal(found: object, expected: object, what: str = "") -> None:
    """Raise CheckFailedError unless two values are equal. ``what`` names the value."""
    if found != expected:
        subject = f"{what}: " if what else ""
        raise CheckFailedError(
            f"{subject}found {_short(found)}, expected {_short(expected)}"
        )


@contextmanager
def expect_error(kind: type[Exception], text: str = "") -> Iterator[None]:
    """Raise CheckFailedError unless the block raises an error that contains a text."""
    try:
        yield
    except kind as error:
        expect(text in str(error), f"the error {error} doesn't contain {text!r}")
    else:
        raise CheckFailedError(f"no {kind.__name__} was raised")


def _short(value: object) -> str:
    return shorten(repr(value), MAX_ERROR_LETTERS)


# --- results --------------------------------------------------------------------------


class Result(NamedTuple):
    """The result of one check."""

    part: str
    name: str
    verdict: Verdict
    seconds: float
    # Why the check failed or was skipped, or "".
    reason: str
    figures: dict[str, Any]

    @property
    def line(self) -> str:
        """The result as a line of text."""
        reason = f": {self.reason}" if self.reason else ""
        return (
            f"{MARKS[self.verdict]} {self.seconds:6.1f} s  {self.part}: "
            f"{self.name}{reason}"
        )


class Report(NamedTuple):
    """The results of a run, and where it was made."""

    started: str  # as 2026-01-31T12:00:00Z
    region: str
    # "AWS", or "another endpoint".
    endpoint: str
    seconds: float
    results: list[Result]
    # What could not be removed, or a sentence about what was kept.
    remarks: list[str]

    @property
    def is_good(self) -> bool:
        """True if no check failed and at least one passed."""
        counts = self.counts
        return counts["passed"] > 0 and counts["failed"] == 0

    @property
    def counts(self) -> Counter[str]:
        """The number of checks by verdict."""
        return Counter(result.verdict for result in self.results)

    @property
    def verdict(self) -> str:
        """The result of the whole run in one line."""
        counts = self.counts
        text = ", ".join(f"{counts[one]} {one}" for one in MARKS)
        good = "GOOD" if self.is_good else "NOT GOOD"
        return f"{good}: {text} in {self.seconds:.0f} s"

    def lines(self) -> list[str]:
        """Return the verdict for the terminal."""
        failed = [r for r in self.results if r.verdict == "failed"]
        lines = ["", *(f"  {remark}" for remark in self.remarks)]
        lines += [
            f"  - {result.part}: {result.name}: {result.reason}" for result in failed
        ]
        return [*lines, self.verdict]

    def json(self) -> str:
        """Return the report as JSON."""
        report = {
            "version": REPORT_VERSION,
            "started": self.started,
            "region": self.region,
            "endpoint": self.endpoint,
            "versions": versions(),
            "good": self.is_good,
            "counts": {one: self.counts[one] for one in MARKS},
            "seconds": round(self.seconds, 1),
            "remarks": self.remarks,
            "checks": [
                result._asdict() | {"seconds": round(result.seconds, 2)}
                for result in self.results
            ],
        }
        return masked(json.dumps(report, indent=2, ensure_ascii=False)) + "\n"

    def markdown(self) -> str:
        """Return the report as Markdown, to attach to an issue."""
        lines = [
            "# kinesumer acceptance",
            "",
            f"**{self.verdict}**",
            "",
            f"- started {self.started}, region {self.region}, {self.endpoint}",
            *(f"- {name} {number}" for name, number in versions().items()),
            *(f"- {remark}" for remark in self.remarks),
            "",
            "| part | check | verdict | seconds | remarks |",
            "|---|---|---|---|---|",
        ]
        for result in self.results:
            figures = (f"{key}: {value}" for key, value in result.figures.items())
            remarks = "; ".join(filter(None, [result.reason, *figures]))
            cells = [
                result.part,
                result.name,
                result.verdict,
                f"{result.seconds:.1f}",
                remarks,
            ]
            lines.append(f"| {' | '.join(map(_cell, cells))} |")
        return masked("\n".join(lines)) + "\n"


def versions() -> dict[str, str]:
    """Return the versions of Python, the machine and the packages that matter."""
    found = {"Python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


# An account id has 12 digits. The number of a shard has 12, too, after a hyphen.
_ACCOUNT = re.compile(r"(?<![0-9A-Za-z.-])[0-9]{12}(?![0-9A-Za-z])")
_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


def masked(text: str) -> str:
    """Return text without account ids and access keys."""
    return _KEY.sub("***", _ACCOUNT.sub("***", text))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
