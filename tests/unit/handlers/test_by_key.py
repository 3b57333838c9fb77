"""Test that the keys of a shard are handled concurrently, and each of them in order."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from itertools import groupby

import pytest

from kinesumer import Batch, Record
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.invokers import Gate
from kinesumer.testing.kinesis.streams import AUTO
from tests.support.handler_client import RealTimeClient, Runner, committed, ignore
from tests.support.world import World, hold


def put(world: World, *items: str) -> None:
    """Put records "KEY TEXT" into the only shard."""
    for item in items:
        key, _, _ = item.partition(" ")
        world.kinesis.put("orders", item.encode(), key, 0)


class Keys:
    """A handler that notes the keys of the records in progress."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.begun: list[str] = []
        self.done: list[str] = []
        self.at: list[str | None] = []
        self.most = 0
        self.slow: dict[str, float] = {}

    async def record(self, record: Record) -> None:
        """Take a record."""
        key, text = record.partition_key, record.data.decode()
        assert key is None or key not in self.at, "two calls with one key"
        self.begun.append(text)
        self.at.append(record.partition_key)
        self.most = max(self.most, len(self.at))
        await asyncio.sleep(self.slow.get(text, self.seconds))
        self.at.remove(record.partition_key)
        self.done.append(text)

    def of(self, key: str) -> list[str]:
        """Return the finished records of a key."""
        return [text.partition(" ")[2] for text in self.done if text[0] == key]


async def test_keys_are_handled_side_by_side_and_each_in_order(world: World) -> None:
    keys = Keys()
    put(world, "a 1", "a 2", "b 1", "c 1", "a 3", "b 2", "d 1")
    Runner(world, keys.record, concurrency=3)
    await world.until(lambda: len(keys.done) == 7)
    assert keys.most == 3
    assert keys.of("a") == ["1", "2", "3"]
    assert keys.of("b") == ["1", "2"]


async def test_records_without_a_key_are_handled_side_by_side(world: World) -> None:
    keys = Keys()
    put(world, *(f" {number}" for number in range(6)), "a 1", "a 2")
    Runner(world, keys.record, concurrency=3)
    await world.until(lambda: len(keys.done) == 8)
    assert keys.most == 3
    assert keys.of("a") == ["1", "2"]


async def test_a_slow_key_holds_nobody_up_and_the_checkpoint_waits_for_it(
    world: World,
) -> None:
    keys = Keys()
    keys.slow = {"b 1": 200.0}
    put(world, "a 1", "b 1", "a 2", "c 1", "b 2", "a 3")
    runner = Runner(world, keys.record, concurrency=2, commit_interval_seconds=0.1)
    await world.until(lambda: keys.of("a") == ["1", "2", "3"])
    put(world, "a 4", "b 3", "c 2")
    await world.until(lambda: keys.of("c") == ["1", "2"])
    await asyncio.sleep(1)
    assert committed(world) == 1
    await world.until(lambda: committed(world) == 9, seconds=600)
    assert keys.of("b") == ["1", "2", "3"]
    assert runner.group.buffer.used < 200_000


async def test_a_handler_slow_with_one_record_leaves_the_rest_to_the_others(
    world: World,
) -> None:
    keys = Keys(seconds=0.5)
    keys.slow = {"0 x": 60.0}
    put(world, *(f"{number} x" for number in range(40)))
    Runner(world, keys.record, concurrency=4)
    await world.until(lambda: len(keys.done) == 39)
    assert world.clock.now() < 15


async def test_a_hand_over_waits_for_all_that_is_in_hand_and_begins_nothing(
    world: World,
) -> None:
    keys = Keys(seconds=3)
    put(world, *(f"{key} {n}" for n in range(3) for key in "abcd"))
    runner = Runner(world, keys.record, concurrency=4)
    await world.until(lambda: len(keys.begun) == 4)
    await runner.leave()
    assert keys.begun == ["a 0", "b 0", "c 0", "d 0"]
    assert len(keys.done) == 4
    assert committed(world) == 4


async def test_what_is_done_behind_a_gap_is_done_again_by_the_next_owner(
    world: World,
) -> None:
    keys, again = Keys(), Keys()
    keys.slow = {"b 1": 200.0}
    put(world, "a 1", "b 1", "c 1", "a 2")
    runner = Runner(world, keys.record, concurrency=3, drain_timeout_seconds=1.0)
    await world.until(lambda: len(keys.done) == 3)
    await runner.leave()
    assert committed(world) == 1
    Runner(world, again.record, "c2")
    await world.until(lambda: len(again.done) == 3)
    assert again.done == ["b 1", "c 1", "a 2"]


async def test_batches_are_of_keys_that_nobody_else_is_at(world: World) -> None:
    at: list[str | None] = []
    seen: dict[str | None, list[str]] = defaultdict(list)
    sizes: list[int] = []
    most = 0

    async def handle(batch: Batch) -> None:
        nonlocal most
        mine = {record.partition_key for record in batch.records}
        assert not mine & set(at)
        at.extend(mine)
        most = max(most, len(at))
        await asyncio.sleep(1)
        sizes.append(len(batch))
        for record in batch.records:
            seen[record.partition_key].append(record.data.decode().partition(" ")[2])
        for key in mine:
            at.remove(key)

    put(world, *(f"{n % 20} {n}" for n in range(400)))
    runner = Runner(world, handle, concurrency=4)
    await world.until(lambda: sum(sizes) == 400)
    for key, numbers in seen.items():
        assert numbers == [str(n) for n in range(400) if str(n % 20) == key]
    assert most > 4
    assert max(sizes) >= 40
    await runner.leave()
    assert committed(world) == 400


async def test_a_record_that_fails_holds_up_its_key_only(world: World) -> None:
    calls: list[str] = []

    async def handle(record: Record) -> None:
        calls.append(record.data.decode())
        if record.data == b"a 1" and calls.count("a 1") < 4:
            raise ValueError

    retries = RetryPolicy(initial_delay_seconds=100, max_delay_seconds=100)
    put(world, "a 1", "a 2", "b 1", "c 1", "b 2")
    Runner(world, handle, concurrency=2, retries=retries)
    await world.until(lambda: {"b 2", "c 1"} <= {*calls})
    assert "a 2" not in calls
    await world.until(lambda: "a 2" in calls, seconds=500)


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_streams_whose_keys_have_no_order_are_told_of_once(
    world: World, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.create_stream("auto").distribution = AUTO
    streams = ["orders", "auto"]
    runner = Runner(world, ignore, "c1", *streams, concurrency=concurrency)
    await world.until(lambda: len(runner.held) == 2)
    await runner.run(runner.client.refresh(streams))
    assert len(warnings(caplog)) == concurrency - 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about streams that distribute records by AUTO."""
    said = [record.getMessage() for record in caplog.records]
    return [text for text in said if "distributes records by AUTO" in text]


KEYS = 2**128


def put_into(world: World, shard: int, *keys: str) -> None:
    """Put records with these keys into one of the three shards of the stream "many"."""
    for key in keys:
        world.kinesis.put("many", b"x", key, shard * KEYS // 3)


class Blocking:
    """A handler that blocks the event loop, and notes the shards of its records."""

    def __init__(self, world: World, seconds: float) -> None:
        self._world, self._seconds = world, seconds
        self.shards: list[int] = []

    async def record(self, record: Record) -> None:
        self.shards.append(int(record.shard_id[-1]))
        self._world.loop.real += self._seconds

    async def batch(self, batch: Batch) -> None:
        await self.record(batch.records[0])


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_shards_take_turns_while_a_handler_blocks_the_loop(
    world: World, concurrency: int
) -> None:
    world.kinesis.create_stream("many", 3)
    for shard in range(3):
        put_into(world, shard, *map(str, range(20)))
    handler = Blocking(world, 1)
    runner = Runner(world, handler.record, "c1", "many", concurrency=concurrency)
    await world.until(lambda: len(handler.shards) >= 60, seconds=300)
    # The first shard begins alone, since the records of the others arrive later.
    order = handler.shards[6:54]
    assert all(len({*order[at : at + 3]}) == 3 for at in range(len(order) - 2))
    await runner.leave()


class Place:
    """An item that waits at the gate, and its queue of the same shard."""

    def __init__(self) -> None:
        self.queue = self.work = self
        self.owned, self.is_over = hold(), False


async def test_a_handler_that_needed_no_wait_had_a_turn_too(world: World) -> None:
    gate, passed = Gate(world.clock, lambda: None), list[str]()

    async def enter(name: str, place: Place) -> None:
        await gate(place)  # type: ignore[arg-type]
        passed.append(name)

    one, other = Place(), Place()
    await asyncio.gather(enter("one", one), enter("other", other))
    await enter("one", one)  # before the next pause
    world.loop.real += 1
    await asyncio.gather(enter("one", one), enter("other", other))
    assert passed == ["one", "other", "one", "other", "one"]


async def test_a_call_does_not_overtake_those_that_wait_after_a_pause(
    world: World,
) -> None:
    gate, passed = Gate(world.clock, lambda: None), list[str]()

    async def enter(name: str, place: Place, calls: int) -> None:
        for _ in range(calls):
            await gate(place)  # type: ignore[arg-type]
            passed.append(name)

    one, other = Place(), Place()
    await asyncio.gather(enter("one", one, 1), enter("other", other, 1))
    world.loop.real += 1
    await asyncio.gather(enter("one", one, 2), enter("other", other, 1))
    assert passed[2:] == ["one", "other", "one"]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_shard_that_had_no_records_is_next(world: World, whole: bool) -> None:
    world.kinesis.create_stream("many", 3)
    for shard in range(2):
        put_into(world, shard, *map(str, range(300)))
    handler = Blocking(world, 0.3)
    runner = Runner(
        world,
        handler.batch if whole else handler.record,
        "c1",
        "many",
        batch=whole,
        concurrency=8,
    )
    await world.until(lambda: len(handler.shards) >= 8, seconds=300)
    put_into(world, 2, "new")
    before = len(handler.shards)
    await world.until(lambda: 2 in handler.shards, seconds=300)
    # It is read in the first or second pause of the loop.
    assert handler.shards.index(2) <= before + 3
    await runner.leave()


@pytest.mark.slow
async def test_plain_functions_take_turns_if_there_are_too_few_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.handlers.runner.MAX_THREADS", 1)
    shards: list[str] = []

    def handle(record: Record) -> None:
        shards.append(record.shard_id)
        time.sleep(0.02)
        if len(shards) == 40:
            client.close()

    client = RealTimeClient(handle, shards=2)
    for number in range(20):
        client.kinesis.put("orders", b"x", str(number), 0)
        client.kinesis.put("orders", b"x", str(number), KEYS - 1)
    await client.run_all()
    runs = [len([*run]) for _, run in groupby(shards)]
    # A turn ends with the record that is handled 50 ms after its beginning. The first
    # shard may begin alone, and the last one may end alone.
    assert max(runs[1:-1]) <= 3
    assert len(runs) >= 6
