"""Test position files and rows of KCL tables that anybody may have written."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.streams import Start
from kinesumer.ops.group.distribution import report
from kinesumer.ops.migration.import_plan import ResumePoint
from kinesumer.ops.migration.kcl import distribution_of, read_table, streams_to_open
from kinesumer.ops.migration.kcl_export import plan_kcl_export
from kinesumer.ops.migration.positions import (
    decode,
    plan_kcl_import,
    resume_point_of_lease,
)
from kinesumer.wire.fields import read_position, read_start
from kinesumer.wire.rows import start_text
from kinesumer.wire.shard_writes import position_values
from tests.support.kcl_fleet import S0, S1, World, leases, rows_of
from tests.support.lease_table import lease
from tests.support.steps import growth
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


def with_shards(*shards: dict[str, Any]) -> bytes:
    """Return the file with these shards."""
    stream = FILE["streams"][0] | {"shards": shards}
    return json.dumps(FILE | {"streams": [stream]}).encode()


REFUSED = [
    (b"", "truncated"),
    (b"\xff\xfe", "malformed"),
    (b"NaN", "malformed"),
    (b"[" * 100_000, "Expected `object`"),
    (b'{"kind":' + b"[" * 100_000, "Expected `str`"),
    (json.dumps(FILE | {"streams": 2 * FILE["streams"]}).encode(), "a stream twice"),
    (json.dumps(FILE | {"version": 2}).encode(), "Invalid enum value 2"),
    (json.dumps(FILE | {"more": 1}).encode(), "unknown field `more`"),
    (with_shards(SHARD, SHARD), "a shard is named twice"),
    (with_shards(SHARD | {"sequence_number": "x"}), "regex"),
    (with_shards(SHARD | {"sequence_number": None}), "sub_sequence_number without"),
    (with_shards(SHARD | {"start": "AT_TIMESTAMP"}), "start 'AT_TIMESTAMP' is neither"),
    (with_shards(SHARD | {"ended": "yes"}), "Expected `bool`"),
    (with_shards(SHARD | {"end": True}), "unknown field `end`"),
]


@pytest.mark.parametrize(("content", "text"), REFUSED, ids=lambda one: str(one[:60]))
def test_an_invalid_file_is_refused(content: bytes, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        for stream in decode(content).streams:
            stream.resume_points()


def test_the_unchanged_file_is_valid() -> None:
    [point] = resume_points(json.dumps(FILE).encode())
    assert point.start == Start(type="AT_TIMESTAMP", timestamp=5.0)


numbers = st.integers(-(10**38), 10**38).map(str) | st.sampled_from(["1E+125", "1.5"])
attributes: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"S": st.text(max_size=8) | numbers}),
    st.fixed_dictionaries({"N": numbers}),
    st.fixed_dictionaries({"B": st.binary(max_size=4)}),
    st.fixed_dictionaries({"SS": st.lists(st.text(max_size=4), min_size=1)}),
    st.just({"NULL": True}),
    st.just({"BOOL": True}),
    st.just({"L": []}),
    st.just({"M": {"S": {"S": "x"}}}),
    st.sampled_from(["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP", "SHARD_END"]).map(
        lambda text: {"S": text}
    ),
)
NAMES = (*lease(S0, "49"), "pendingCheckpoint", "throughputKBps", "childShardIds")
KEYS = (
    *(S0, S1, "", "shard 1", "a:b:c", "123456789012:orders:1:" + S0),
    *("123456789012:orders:01:" + S0, "123456789012:orders:" + "9" * 1900 + ":" + S0),
)


@example([{"leaseKey": {"S": S0}, "checkpoint": {"S": "49"}}])
@example([lease(S0, "AT_TIMESTAMP", 10**17)])
@example([lease(S0, "49", throughputKBps={"N": "1E+125"})])
@given(
    st.lists(
        st.builds(
            lambda key, changes: lease(key, "49") | changes,
            st.sampled_from(KEYS),
            st.dictionaries(st.sampled_from(NAMES), attributes, max_size=3),
        ),
        max_size=4,
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_any_lease_table_is_read_or_refused_with_a_message(
    items: list[dict[str, Any]],
) -> None:
    try:
        table = read_table(rows_of(items))
    except ConfigurationError:
        return
    for at in (None, 1.0):
        for lease_row in table.leases:
            resume_point_of_lease(lease_row, at)
    report(distribution_of(table), "prefix")
    shards = [(row.stream, row.shard_id) for row in table.leases]
    assert len(set(shards)) == len({row.key for row in table.leases})
    with suppress(ConfigurationError):
        streams_to_open(table, ["orders"], "eu-west-1")


@pytest.mark.parametrize("counter", [None, {"S": "7"}], ids=["none", "text"])
async def test_leases_are_unchanged_if_one_of_them_cannot_be_written(
    counter: dict[str, str] | None,
) -> None:
    world, table = World(), leases("kclsingle")
    planned = await plan_kcl_import(world.context(), world.open, table, ["orders"])
    await planned.write(world.context())
    table.rows[S1].pop("leaseCounter")
    if counter is not None:
        table.rows[S1]["leaseCounter"] = counter
    before = dict(table.rows)
    with pytest.raises(KinesumerError, match=f"'{S1}': leaseCounter is not a number"):
        await plan_kcl_export(world.context(), world.open, table, ["orders"])
    assert table.rows == before


def test_the_work_of_reading_leases_is_linear() -> None:
    def work(size: int) -> Any:
        items = [lease(f"shardId-{number:012}", "49") for number in range(size)]
        return lambda: report(distribution_of(read_table(rows_of(items))), "prefix")

    assert growth(work) < 5
