"""Read files of Java properties.

The format is that of ``java.util.Properties.load()``, but the file is UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kinesumer.errors import ConfigurationError

BLANKS = " \t\f"
# A name ends at the first separator that no backslash precedes.
_LINE = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> Mapping[str, str]:
    """Return the properties of a file, by name.

    Raises ConfigurationError if the file can't be read, or if it has a name twice.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the properties file {path} can't be read ({error}): name a file of Java "
            "properties in UTF-8"
        ) from error
    found: dict[str, str] = {}
    for name, value in parse_properties(text):
        if name in found:
            raise ConfigurationError(
                f"{path} has the property {name} twice: delete one of the lines"
            )
        found[name] = value
    return found


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values of properties, in the order of the lines."""
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        assert match is not None
        yield _unescaped(match[1]), _unescaped(match[2]).rstrip(BLANKS)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines that have a property, with the lines that continue them."""
    begun = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        backslashes = len(begun) - len(begun.rstrip("\\"))
        if backslashes % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        return _LETTERS.get(escape, escape)

    return _ESCAPE.sub(replaced, text)
