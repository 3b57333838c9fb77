"""Test how files of Java properties are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.kclpy.properties import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("streamName = orders", "streamName", "orders"),
        ("streamName=orders", "streamName", "orders"),
        ("  streamName : orders  ", "streamName", "orders"),
        ("streamName\torders", "streamName", "orders"),
        ("streamName", "streamName", ""),
        ("streamName =", "streamName", ""),
        ("a = b = c", "a", "b = c"),
        (r"a\ b\:c = d", "a b:c", "d"),
        (r"path = C:\\x\ty", "path", "C:\\x\ty"),
        (r"name = \u00e4\x", "name", "äx"),
        ("names = a,\\\n   b,\\\r\n  c", "names", "a,b,c"),
        ("a = b\\", "a", "b"),
        ("a = b # no comment", "a", "b # no comment"),
        (r"a = b\\", "a", "b\\"),
    ],
)
def test_a_line_has_a_name_and_a_value(text: str, name: str, value: str) -> None:
    assert list(parse_properties(text)) == [(name, value)]


def test_comments_and_empty_lines_are_skipped() -> None:
    text = "# a = 1\n\n  ! b = 2\\\nc = 3\r\n \t\r#\nd = 4"
    assert list(parse_properties(text)) == [("c", "3"), ("d", "4")]


def test_a_comment_sign_within_a_continued_line_is_a_part_of_the_value() -> None:
    assert list(parse_properties("a = 1,\\\n# 2")) == [("a", "1,# 2")]


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("a = 1\nb = ä\n", "utf-8")
    assert read_properties(path) == {"a": "1", "b": "ä"}


def test_a_name_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.properties"
    path.write_text("a = 1\na = 2\n")
    with pytest.raises(ConfigurationError, match="has the property a twice: delete"):
        read_properties(path)


@pytest.mark.parametrize("content", [None, b"a = \xff"])
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "app.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"app\.properties can't be read"):
        read_properties(path)
