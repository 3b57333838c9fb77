"""Test that invalid position files are refused with a ConfigurationError."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start
from kinesumer.ops.migration.import_plan import ResumePoint
from kinesumer.ops.migration.positions import decode
from kinesumer.wire.fields import read_position, read_start
from kinesumer.wire.rows import start_text
from kinesumer.wire.shard_writes import position_values
from tests.system.hostile.strategies import json_values

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
SHARD = {
    "shard_id": "shardId-000000000000",
    "ended": False,
    "sequence_number": "49",
    "sub_sequence_number": 3,
    "start": "AT_TIMESTAMP 5.0",
}
FILE: dict[str, Any] = {
    "kind": "kinesumer-positions",
    "version": 1,
    "app": "a",
    "exported_at": "2026-11-21T10:00:00.000Z",
    "streams": [{"stream_arn": ARN, "stream_created_at": 1.0, "shards": [SHARD]}],
}
STARTS = ("LATEST", "AT_TIMESTAMP nan", "AT_TIMESTAMP -1", "AT_TIMESTAMP 1e300")


def resume_points(content: bytes) -> list[ResumePoint]:
    """Return a file's positions. Fail if parsing raises an unexpected error."""
    try:
        streams = decode(content).streams
        return [m for stream in streams for m in stream.resume_points().values()]
    except ConfigurationError:
        return []


@example("start", "AT_TIMESTAMP 253402300799.9")
@example("start", "AT_TIMESTAMP nan")
@example("sequence_number", "٣")
@example("sequence_number", "1" * 130)
@example("sub_sequence_number", 2**53 + 1)
@given(
    st.sampled_from([*SHARD]),
    json_values | st.sampled_from(STARTS) | st.integers().map(str),
)
@settings(max_examples=settings().max_examples // 2)
def test_any_imported_point_can_be_stored_and_read(name: str, value: object) -> None:
    changed = deepcopy(FILE)
    changed["streams"][0]["shards"][0][name] = value
    for point in resume_points(json.dumps(changed).encode()):
        assert read_start({"start": start_text(point.start)}) == point.start
        if point.position is not None:
            assert (
                read_position(dict(position_values(point.position))) == point.position
            )


@given(
    st.sampled_from([("app",), ("version",), ("streams",), ("streams", 0)]), json_values
)
@settings(max_examples=settings().max_examples // 2)
def test_any_json_is_read_or_refused(
    path: tuple[str | int, ...], value: object
) -> None:
    changed: Any = deepcopy(FILE)
    parent = changed
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    resume_points(json.dumps(changed).encode())


TWICE = deepcopy(FILE)
TWICE["streams"][0]["shards"].append(SHARD)
REFUSED = {
    "nothing": b"",
    "no JSON": b"\xff\xfe",
    "NaN": b"NaN",
    "deep": b"[" * 100_000,
    "deep in an object": b'{"kind":' + b"[" * 100_000,
    "a shard twice": json.dumps(TWICE).encode(),
    "a stream twice": json.dumps({**FILE, "streams": 2 * FILE["streams"]}).encode(),
    "a later version": json.dumps({**FILE, "version": 2}).encode(),
    "more than is known": json.dumps({**FILE, "more": 1}).encode(),
}


@pytest.mark.parametrize("content", REFUSED.values(), ids=list(REFUSED))
def test_an_invalid_file_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError):
        for stream in decode(content).streams:
            stream.resume_points()


def test_the_unchanged_file_is_valid() -> None:
    [point] = resume_points(json.dumps(FILE).encode())
    assert point.start == Start(type="AT_TIMESTAMP", timestamp=5.0)
