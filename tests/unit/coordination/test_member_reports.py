"""Test that what clients report with heartbeats costs no further write units."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination.member_reports import MemberReports
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, Row
from kinesumer.wire.reports import (
    LEAST_ENTRIES,
    REPORTS,
    WRITE_UNIT_BYTES,
    read_loads,
    row_bytes,
)
from tests.support.world import Client, World, hold

ARN_LETTERS = 66


async def consume(world: World, count: int, assignor: str) -> Client:
    """Return a client that has measured the load of streams with usual names."""
    prefix = world.kinesis.stream("orders").arn.removesuffix("orders")
    letters = ARN_LETTERS - len(prefix)
    names = [f"orders-{number:02}".ljust(letters, "x") for number in range(count)]
    for name in names:
        world.kinesis.create_stream(name, 2)
    client = world.client("c1", *names, assignor=assignor)
    await world.until(lambda: len(client.held) == 2 * count)
    for _ in range(30):
        for name in names:
            world.put("a", stream=name)
        await asyncio.sleep(1)
    return client


def row(world: World) -> Row:
    [found] = world.table.rows("member#app")
    return found


def units(stored: Row) -> int:
    return -(-row_bytes(stored) // WRITE_UNIT_BYTES)


@pytest.mark.parametrize(("streams", "expected"), [(1, 1), (10, 1), (20, 2), (50, 4)])
async def test_a_heartbeat_costs_the_units_that_the_streams_take(
    world: World, streams: int, expected: int
) -> None:
    client = await consume(world, streams, "range")
    assert units(row(world)) == expected
    for number, arn in enumerate(client.group.streams):
        client.group.context.incidents.note(
            IncidentKind.KMS, stream_arn=arn, error=f"error {number}" + 200 * "x"
        )
    await asyncio.sleep(10)
    stored = row(world)
    rest = {name: value for name, value in stored.items() if name not in REPORTS}
    assert stored["incidents"]
    assert units(stored) == units(rest) or streams == 10
    await client.stop()


@pytest.mark.parametrize("streams", [1, 5, 20])
async def test_the_load_is_written_if_there_is_room(world: World, streams: int) -> None:
    client = await consume(world, streams, "range")
    member = world.members()["c1"]
    found = read_loads(member.load, member.streams)
    assert {report.stream_arn for report in found} == member.streams
    await client.stop()


async def test_skipped_records_are_logged_as_one_count_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    owned, member = hold(), MemberRow("c", "s")
    reports = MemberReports(world.context(), lambda: [owned])
    for second in range(130):
        if second < 100:
            for _ in range(20):
                owned.outcomes.skip(Position("1"))
        reports(member, 500)
        await asyncio.sleep(1)
    text = "records that can't be decoded were skipped within a minute"
    counts = [1220, 780]
    assert caplog.messages == [f"stream orders: {count} {text}" for count in counts]


async def test_plans_by_load_get_a_load_even_without_room(world: World) -> None:
    client = await consume(world, 10, "load")
    member = world.members()["c1"]
    assert len(read_loads(member.load, member.streams)) >= LEAST_ENTRIES
    await client.stop()
