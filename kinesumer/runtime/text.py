"""Makes foreign text safe for errors, logs and terminals."""

from __future__ import annotations


def safe_str(error: BaseException) -> str:
    """Return an error's text, even if its ``str()`` raises."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # as tracebacks show it


def escape_unprintable(text: str) -> str:
    """Return text with every unprintable character escaped.

    A name from the state store may contain line ends or a terminal's control sequences.
    """
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return "".join(escaped)
