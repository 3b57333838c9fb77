"""Test where reading begins and continues, and what a client warns of meanwhile."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    KeyThrottledError,
    KeyUnavailableError,
    SourceUnavailableError,
)
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.positions import Position, Tip
from kinesumer.model.streams import Start
from kinesumer.testing.memory import MemorySource
from tests.support.delivery import ReaderDesk, read_shard
from tests.support.world import ARN, SHARD, World


async def test_it_goes_on_after_the_checkpoint(world: World) -> None:
    world.put("a")
    _, number = world.kinesis.put("orders", b"b", explicit_hash_key=0)
    world.put("c")
    desk = read_shard(world, position=Position(number))
    assert await desk.read(1) == ["c"]
    assert desk.source.iterators == [(SHARD, Position(number))]


async def test_an_expired_iterator_is_renewed_where_it_was(world: World) -> None:
    world.put("a", "b")
    desk = read_shard(world)
    await desk.read(2)
    last = desk.records[-1].sequence_number
    desk.source.errors.append(ExpiredIteratorError("too old"))
    world.put("c", "d")
    assert await desk.read(4) == ["a", "b", "c", "d"]
    assert desk.source.iterators[1:] == [(SHARD, Position(last))]


async def test_a_start_in_the_future_is_awaited(world: World) -> None:
    moment = world.clock.wall() + 0.9
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    world.put("too early")
    await asyncio.sleep(1)
    world.put("a")
    assert await desk.read(1, seconds=5) == ["a"]
    assert desk.stream.failing is None


async def test_after_a_start_by_time_late_arrivals_are_delivered(world: World) -> None:
    moment = world.clock.wall()
    world.put("on time")
    desk = read_shard(world, start=Start(type="AT_TIMESTAMP", timestamp=moment))
    await desk.read(1)
    world.put("put later, arrived on a host whose clock is behind")
    log = world.kinesis.stream("orders").shards[SHARD].log
    log[-1].arrived_at = moment - 1
    assert len(await desk.read(2)) == 2


async def test_a_start_by_time_skips_pages_of_early_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = MemorySource.get_iterator_now

    def to_the_second(
        source: MemorySource, shard_id: str, after: Start, **options: float
    ) -> str:
        assert after.timestamp is not None
        early = Start(type=after.type, timestamp=after.timestamp // 1)
        return exact(source, shard_id, early, **options)

    monkeypatch.setattr(MemorySource, "get_iterator_now", to_the_second)
    await asyncio.sleep(10.2)
    world.put("early", "also early", "still early, but in the same second")
    await asyncio.sleep(0.3)
    moment = world.clock.wall()
    world.put("on time", "later")
    start = Start(type="AT_TIMESTAMP", timestamp=moment)
    desk = read_shard(world, max_records_per_read=1, start=start)
    assert await desk.read(2) == ["on time", "later"]


# --- warnings ---


async def test_a_trimmed_position_goes_on_with_the_oldest_record_and_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    _, number = world.kinesis.put("orders", b"old", explicit_hash_key=0)
    world.put("lost")
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall() - 5)
    world.put("kept")
    desk = read_shard(world, position=Position(number))
    assert await desk.read(1) == ["kept"]
    assert "records may be lost to retention" in caplog.text
    [incident] = desk.incidents.current()
    assert incident.kind is IncidentKind.TRIMMED_POSITION
    assert incident[1:3] == desk.owned.key


async def test_of_a_shard_read_to_its_tip_nothing_is_called_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.put("a")
    desk = read_shard(world)
    await desk.read(1)
    await asyncio.sleep(10)
    world.kinesis.expire("orders", world.clock.wall())
    desk.source.errors.append(SourceUnavailableError("timed out"))
    world.put("b")
    assert await desk.read(2) == ["a", "b"]
    assert "has expired, and nothing came after it" in caplog.text
    assert "lost" not in caplog.text
    assert desk.incidents.current() == []


async def test_what_may_have_come_while_a_shard_was_not_read_may_be_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.stream("orders").retention_hours = 1
    world.put("a")
    desk = read_shard(world)
    await desk.read(1)
    desk.source.down = True
    await asyncio.sleep(10)
    world.put("b")
    await asyncio.sleep(1.1 * 3600)
    world.kinesis.expire("orders", world.clock.wall())
    world.put("c")
    desk.source.down = False
    assert await desk.read(2) == ["a", "c"]
    assert "records may be lost to retention" in caplog.text


async def test_an_open_shard_without_an_iterator_is_read_on_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    desk = read_shard(world)
    await desk.read(1)
    desk.source.without_iterator = 3
    await asyncio.sleep(5)
    assert desk.source.without_iterator == 0
    world.put("b")
    assert await desk.read(2, seconds=2) == ["a", "b"]
    assert not desk.task.done()
    last = Position(desk.records[0].sequence_number)
    assert desk.source.iterators[1:] == [(SHARD, last)] * 3
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 3
    assert "no NextShardIterator, although the shard is open" in warnings[0]
    [incident] = desk.incidents.current()
    assert incident.kind is IncidentKind.UNCONFIRMED_END
    assert incident[1:3] == (ARN, SHARD)


async def test_a_shard_that_expired_after_its_tip_was_seen_is_known_to_be_whole(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    position = Position("5")
    world.kinesis.split("orders", SHARD)
    await asyncio.sleep(10)
    tip = Tip(world.clock.wall(), position)
    world.kinesis.expire("orders", world.clock.wall())
    desk = read_shard(world, position=position, tip=tip)
    await desk.task
    assert "shardId-000000000000 has expired, and was read to its end" in caplog.text
    assert "lost" not in caplog.text


async def test_reads_without_a_usable_key_become_slow_and_are_an_incident(
    world: World,
) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    disabled = KeyUnavailableError("KMSDisabledException")
    desk.source.errors.extend(disabled for _ in range(20))
    desk.start()
    await asyncio.sleep(200)
    [incident] = desk.incidents.current()
    assert (incident.kind, incident.shard_id) == (IncidentKind.KMS, "")
    assert incident.error == "KMSDisabledException"
    gaps = [after - before for before, after in pairwise(desk.source.reads)]
    assert gaps[0] <= 1.0
    assert 15.0 <= min(gaps[6:]) and max(gaps) <= 30.0
    assert desk.stream.failing is None  # so the client isn't degraded
    assert await desk.read(1, seconds=400) == ["a"]
    assert desk.incidents.current() == []


async def test_one_throttled_use_of_a_key_is_no_incident(world: World) -> None:
    world.put("a")
    desk = ReaderDesk(world)
    desk.source.errors.append(KeyThrottledError("KMSThrottlingException"))
    desk.start()
    await asyncio.sleep(0.4)
    assert desk.incidents.current() == []
    assert await desk.read(1, seconds=2) == ["a"]
