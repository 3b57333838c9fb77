"""Make text safe for logs and terminals; shorten names; format durations and counts."""

from __future__ import annotations

from collections.abc import Iterable

MAX_STREAM_LETTERS = 40  # tables and texts shorten longer names; AWS permits 128
MAX_NAMED = 10  # messages name at most this many shards; JSON output names all


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
