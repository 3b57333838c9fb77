"""Text of others, fit for errors, logs and terminals."""

from __future__ import annotations


def safe_str(error: BaseException) -> str:
    """Return an error's text, also of one of user code's that can't be asked for it."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # as tracebacks show it


def escape_unprintable(text: str) -> str:
    """Return text of others fit for a line: what can't be printed is escaped.

    A name that was read from the state store may hold line ends, or what moves a
    terminal's cursor.
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(escaped)
