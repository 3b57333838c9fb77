"""Test that a line of any length and content is put, or reported with a reason."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError
from kinesumer.ops.cli.produce import LineSplitter
from kinesumer.ops.group.produce import MAX_LINE_BYTES, LineParser, parse_key
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.put_records import Entry
from tests.integration.ops.cli.conftest import Run, aws, environment, run
from tests.system.hostile.strategies import json_values

__all__ = ["aws", "environment", "run"]


def parser(*, jsonl: bool, key: str | None) -> LineParser:
    key = key if key or jsonl else "random"
    source = None if key is None else parse_key(key, random.Random(1))
    return LineParser(jsonl=jsonl, key=source)


@given(st.lists(st.binary(max_size=9)), st.lists(st.integers(1, 9)))
def test_chunks_of_any_length_are_split_into_the_same_lines(
    lines: list[bytes], lengths: list[int]
) -> None:
    whole = b"\n".join(lines)
    splitter, split, start = LineSplitter(), [], 0
    for length in [*lengths, len(whole) or 1]:
        if chunk := whole[start : start + length]:
            split += splitter.lines(chunk)
        start += length
    split += splitter.lines(b"")
    expected = whole.split(b"\n")
    assert split == (expected if expected[-1] else expected[:-1])


any_lines = st.binary(max_size=40) | st.builds(
    lambda fields: json.dumps(fields).encode(),
    st.dictionaries(
        st.sampled_from(["partition_key", "data", "data_base64", "explicit_hash_key"]),
        json_values,
    ),
)


@example(b'{"x":' + b"[" * 100_000, True, None)
@example(b'{"partition_key":"k","data":' + b"[" * 100_000, True, None)
@example(b'{"x":' + b"[" * 100_000, False, "field:x")
@example(b'{"x":"\\ud800"}', False, "field:x")
@example(b'{"x":"\xff"}', False, "field:x")
@example(b'{"partition_key":"\\ud800","data":1}', True, None)
@example(b'{"partition_key":"k","data":"\\ud800"}', True, None)
@example(b'{"partition_key":"k","data_base64":"\xc3\xa9"}', True, None)
@given(
    any_lines, st.booleans(), st.sampled_from([None, "random", "field:x", "field:é"])
)
@settings(max_examples=settings().max_examples // 2)
def test_a_line_is_a_record_or_has_a_reason(
    line: bytes, jsonl: bool, key: str | None
) -> None:
    parsed = parser(jsonl=jsonl, key=key).parse(line)
    assert parsed is None or isinstance(parsed, Entry | str)


def test_an_unprintable_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"--key 'constant:\\udcff'"):
        parse_key("constant:\udcff", random.Random(1))


def test_the_memory_for_an_endless_line_is_bounded() -> None:
    splitter = LineSplitter()
    for _ in range(40):
        splitter.lines(b"x" * (1 << 20))
    [line, other] = splitter.lines(b"y\nz\n")
    assert (len(line), other) == (MAX_LINE_BYTES + 1, b"z")


def test_a_line_that_is_too_long_is_named_and_the_next_is_put(
    aws: EmbeddedAws, run: Run, tmp_path: Path
) -> None:
    aws.create_stream("orders")
    path = tmp_path / "lines"
    path.write_bytes(b"a\n%b\n\xff\x00\nlast" % (b"x" * (MAX_LINE_BYTES + 99)))
    result = run("produce", "orders", str(path))
    assert result.exit_code == 1
    assert (
        result.stderr == "not put: line 2: the line is longer than 16,777,216 bytes\n"
    )
    assert result.stdout.startswith("3 of 4 lines put as 3 records")
