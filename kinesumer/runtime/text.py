"""Make text safe for logs and terminals; shorten names; format durations and counts.

A proxy or a service may repeat a request in its answer, for example on a page that says
what was wrong with it. Such texts are parts of errors and of log lines, so the secrets
that this process uses are replaced in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

# Tables and texts shorten longer names; AWS permits 128. A terminal has 80 columns.
MAX_STREAM_LETTERS = 40
# Messages name at most this many shards, which is some lines; JSON output names all.
MAX_NAMED = 10
MASK = "***"
# Credentials are renewed, so the oldest secrets are forgotten. Chosen: renewed each
# hour, with three secrets, credentials are remembered for a day.
KEPT_SECRETS = 100
# Shorter secrets would often be found in ordinary words.
LEAST_LETTERS = 4
# A longer secret that is cut off after so many letters is replaced, too. Chosen: fewer
# letters begin other texts, such as the ids of keys of one account.
CUT_LETTERS = 12
# So much of a text from outside is examined. Secrets have at most some kilobytes, so
# that what is cut off in the middle of one is far beyond the part that is shown.
EXAMINED_LETTERS = 32_768
QUOTED_LETTERS = 1_000  # chosen: a dozen lines of a terminal
_NAMED = {
    "amp": "&",
    "equals": "=",
    "gt": ">",
    "lt": "<",
    "plus": "+",
    "quot": '"',
    "sol": "/",
}


def safe_str(error: BaseException) -> str:
    """Return an error's text, even if its ``str()`` raises."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # the text in Python's tracebacks


def escape_unprintable(text: str) -> str:
    """Return text with every unprintable character escaped.

    A name from the state store may contain line ends or a terminal's control sequences.
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(escaped)


def abbreviate(names: Iterable[str], limit: int) -> str:
    """Return the first names, and the number of the others."""
    names = list(names)
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def first_three(names: Iterable[str]) -> str:
    """Return the first three names, and the number of the others."""
    return abbreviate(names, 3)


def shorten(text: str, max_letters: int) -> str:
    """Return text of at most ``max_letters``, with ``…`` for its middle if cut.

    Ids often begin alike, so more of the end is kept than of the beginning.
    """
    if len(text) <= max_letters:
        return text
    first = (max_letters - 1) // 3
    return f"{text[:first]}…{text[first + 1 - max_letters :]}"


def counted(count: int, noun: str) -> str:
    """Return a number with a noun: 1 record, 1,500 records."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def number_text(value: float) -> str:
    """Return a number with at most three digits, such as 0.35, 412, 1.2k or 3.4M."""
    if 0 < value < 0.001:
        return "<0.001"
    value = float(f"{value:.3g}")
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration_text(millis: float) -> str:
    """Return a duration in a suitable unit: 320 ms, 1.2 s, 5 min, 3.1 h, 2.0 d."""
    if millis < 1000:
        return f"{millis:.0f} ms"
    seconds = millis / 1000
    if seconds < 100:
        return f"{seconds:.1f} s"
    for unit, size, limit in (("min", 60, 100), ("h", 3600, 48)):
        if seconds / size < limit:
            return f"{seconds / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds / 86400:.1f} d"


class Secrets:
    """The values of secrets. Any thread may call the methods."""

    def __init__(self) -> None:
        self._patterns: dict[str, re.Pattern[str]] = {}

    def add(self, value: str | None) -> None:
        """Remember a secret. Values that are too short are ignored."""
        if value is None or len(value) < LEAST_LETTERS or value in self._patterns:
            return
        if len(self._patterns) >= KEPT_SECRETS:
            del self._patterns[next(iter(self._patterns))]
        first = "".join(map(_spellings, value[:CUT_LETTERS]))
        self._patterns[value] = re.compile(first)

    def redact(self, text: str) -> str:
        """Return text with the secrets replaced, also if they are encoded in it."""
        for value, first in list(self._patterns.items()):
            text = _replaced(text, value, first)
        return text

    def quote(self, text: str) -> str:
        """Return a text from outside, shortened and without secrets."""
        return self.redact(text[:EXAMINED_LETTERS])[:QUOTED_LETTERS]

    def clean(self, error: BaseException) -> None:
        """Remove secrets from the texts of an error of another library.

        A traceback shows these texts, whatever is raised in place of the error.
        """
        error.args = tuple(map(self._cleaned, error.args))
        for name, value in vars(error).items():
            if type(value) is dict:
                self.clean_values(value)
            else:
                setattr(error, name, self._cleaned(value))

    def clean_values(self, texts: dict[Any, Any]) -> None:
        """Remove secrets from the texts that are values of a dictionary."""
        texts.update({key: self._cleaned(value) for key, value in texts.items()})

    def _cleaned(self, value: Any) -> Any:
        return self.redact(value) if isinstance(value, str) else value


SECRETS = Secrets()


def _replaced(text: str, value: str, first: re.Pattern[str]) -> str:
    parts, done = [], 0
    for match in first.finditer(text):
        if match.start() < done:
            continue
        end = match.end()
        for letter in value[CUT_LETTERS:]:
            more = _spelling(letter).match(text, end)
            if more is None:
                break
            end = more.end()
        parts += [text[done : match.start()], MASK]
        done = end
    return "".join([*parts, text[done:]])


@cache
def _spelling(letter: str) -> re.Pattern[str]:
    return re.compile(_spellings(letter))


def _spellings(letter: str) -> str:
    """Return a pattern of the ways to write a letter in URLs, HTML and JSON."""
    if letter.isalnum():
        return re.escape(letter)
    code = ord(letter)
    encoded = "".join(f"%{byte:02x}" for byte in letter.encode(errors="replace"))
    ways = (
        re.escape(letter),
        rf"\\+{re.escape(letter)}",
        f"(?i:{encoded})",
        rf"&#0*{code};",
        rf"(?i:&#x0*{code:x};)",
        rf"(?i:\\+u{code:04x})",
        *(f"&{name};" for name, one in _NAMED.items() if one == letter),
    )
    return f"(?:{'|'.join(ways)})"
