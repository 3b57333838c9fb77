"""Test that lines are put as records in order, and that failed lines are named."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kinesumer.errors import AccessDeniedError, ConfigurationError, RecordRefusedError
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.ops.cli.produce import InputLines
from kinesumer.ops.group.produce import (
    FailedLines,
    LineParser,
    LineProducer,
    ProduceResult,
    parse_key,
    parse_rate,
    reported_by_its_future,
    sample_order,
    sample_orders,
)
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.wire.aggregation import hash_key_of
from kinesumer.wire.put_records import Entry, EntryResult
from tests.support.toy_stream import INFO, PutTarget, parser
from tests.support.world import run

THROTTLED = EntryResult(error_code="ProvisionedThroughputExceededException")
HALF = HASH_KEYS // 2
SHARDS = [Shard("shardId-0", 0, HALF - 1), Shard("shardId-1", HALF, HASH_KEYS - 1)]


def accepted(entry: Entry) -> EntryResult:
    hash_key = hash_key_of(entry.partition_key or "", entry.explicit_hash_key)
    shard = SHARDS[hash_key >= HALF]
    return EntryResult(shard_id=shard.shard_id, sequence_number="1")


class Stream(PutTarget):
    """A stream that throttles, and whose credentials expire after some records."""

    def __init__(
        self, throttled_share: float = 0.0, max_records: int = 1 << 30
    ) -> None:
        super().__init__(INFO._replace(max_record_bytes=1000))
        self.throttled_share, self.max_records = throttled_share, max_records
        self.chance = random.Random(1)
        self.accepted: list[Entry] = []
        self.at: list[float] = []

    async def list_shards(self) -> list[Shard]:
        return SHARDS

    async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
        await asyncio.sleep(0.05)
        if len(self.accepted) >= self.max_records:
            raise AccessDeniedError("kinesis:PutRecords", "orders")
        results = []
        for entry in records:
            throttled = self.chance.random() < self.throttled_share
            results.append(THROTTLED if throttled else accepted(entry))
            if not throttled:
                self.accepted.append(entry)
                self.at.append(asyncio.get_running_loop().time())
        return results


def record_producer(
    stream: Stream, give_up_seconds: float = 300.0, *, aggregate: bool = False
) -> RecordProducer:
    return RecordProducer(
        stream,
        stream.info,
        ordered=True,
        shards=SHARDS if aggregate else None,
        chance=random.Random(1),
        on_refused=reported_by_its_future,
        give_up_seconds=give_up_seconds,
    )


async def produce(
    stream: Stream,
    lines: Sequence[bytes],
    parse: LineParser,
    give_up: float = 300.0,
    **more: Any,
) -> ProduceResult:
    records = record_producer(stream, give_up, aggregate=more.pop("aggregate", False))
    return await LineProducer(records, parse, **more).run(portions(lines))


async def portions(lines: Sequence[bytes]) -> AsyncIterator[Sequence[bytes]]:
    for first in range(0, len(lines), 700):
        yield lines[first : first + 700]


def numbered(count: int) -> list[bytes]:
    return [b'{"n": %d, "who": "customer %d"}' % (n, n % 7) for n in range(count)]


def test_each_line_becomes_a_record_with_its_own_random_key() -> None:
    stream = Stream()
    result = run(produce(stream, numbered(1500), parser()))
    assert sorted(entry.data for entry in stream.accepted) == sorted(numbered(1500))
    assert len({entry.partition_key for entry in stream.accepted}) == 1500
    assert (result.lines, result.counts.rows, result.not_put) == (1500, 1500, [])


def test_a_rate_is_kept() -> None:
    stream = Stream()
    run(produce(stream, numbered(200), parser(), rate=50.0))
    accepted_by = [sum(at <= second for at in stream.at) for second in (1.2, 2.2, 3.2)]
    assert all(abs(accepted_by[n] - 50 * (n + 1)) <= 12 for n in range(3)), accepted_by


@pytest.mark.parametrize(("rate", "lines"), [(2.0, 201), (0.001, 1)])
def test_stopping_puts_the_accepted_lines_only(rate: float, lines: int) -> None:
    stream = Stream()

    async def stopped() -> ProduceResult:
        producer = LineProducer(record_producer(stream), parser(), rate=rate)
        asyncio.get_running_loop().call_later(100.2, producer.stop)
        return await producer.run(portions(numbered(10_000)))

    result = run(stopped())
    assert len(stream.accepted) == result.lines == lines
    assert not result.not_put
    assert result.seconds < 102


def test_invalid_lines_are_reported_and_the_others_are_put() -> None:
    failed: list[FailedLines] = []
    lines = [b"good", b"x" * 2000, b"good too"]
    stream = Stream()
    result = run(produce(stream, lines, parser(), on_failed=failed.append))
    assert result.not_put == failed
    assert [(part.first, part.last) for part in failed] == [(2, 2)]
    assert "more than the 1,000" in failed[0].reason
    assert len(stream.accepted) == 2


def test_a_line_that_the_stream_has_refused_does_not_end_the_others() -> None:
    class Changing(Stream):
        """Takes smaller records than its description has told at first."""

        async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
            self.info = self.info._replace(max_record_bytes=500)
            if any(entry.size > 500 for entry in records):
                raise RecordRefusedError("InvalidArgumentException")
            return await super().put_records(records)

    lines = [b"small", b"x" * 600, b"small too", b"x" * 700]
    stream = Changing()
    result = run(produce(stream, [*lines, *numbered(900)], parser()))
    assert [(part.first, part.last) for part in result.not_put] == [(2, 2), (4, 4)]
    assert "more than the 500" in result.not_put[0].reason
    assert result.failure is None
    assert len(stream.accepted) == 902


@pytest.mark.parametrize("aggregate", [False, True])
def test_after_a_failure_each_line_was_accepted_or_is_reported(aggregate: bool) -> None:
    stream = Stream(throttled_share=0.3, max_records=0 if aggregate else 1500)
    by_field = parser(key="field:who")
    lines = numbered(4000)
    work = produce(stream, lines, by_field, aggregate=aggregate, rate=20_000.0)
    result = run(work)
    assert "access denied" in (result.failure or "")
    named = {n for first, last, _ in result.not_put for n in range(first - 1, last)}
    accepted = (
        {json.loads(e.data)["n"] for e in stream.accepted} if not aggregate else set()
    )
    assert accepted | named == set(range(result.lines))


def test_a_long_outage_ends_the_run_and_reports_the_lines() -> None:
    stream = Stream(throttled_share=1.0)
    result = run(produce(stream, numbered(10), parser(), give_up=20.0))
    assert [(part.first, part.last) for part in result.not_put] == [(1, 10)]
    assert "ProvisionedThroughputExceeded" in (result.failure or "")


def test_failing_input_is_a_failure_even_if_all_its_lines_were_put() -> None:
    async def broken() -> AsyncIterator[Sequence[bytes]]:
        yield [b"one"]
        await asyncio.sleep(10)
        raise ConfigurationError("a line is longer than any record")

    async def work() -> ProduceResult:
        producer = LineProducer(record_producer(Stream()), parser())
        return await producer.run(broken())

    result = run(work())
    assert result.failure == "a line is longer than any record"
    assert (result.counts.rows, result.not_put) == (1, [])


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (b'{"partition_key": "k", "data": "caf\xc3\xa9"}', Entry(b"caf\xc3\xa9", "k")),
        (b'{"partition_key": "k", "data_base64": "/wA="}', Entry(b"\xff\x00", "k")),
        (b'{"partition_key": "k", "data": {"n": 1}}', Entry(b'{"n": 1}', "k")),
        (
            b'{"partition_key": "k", "data": "", "explicit_hash_key": "7", "more": 1}',
            Entry(b"", "k", "7"),
        ),
        (b"  \r", None),
    ],
)
def test_a_line_of_json_is_a_record(line: bytes, entry: Entry | None) -> None:
    assert parser(jsonl=True).parse(line) == entry


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "malformed"),
        (b"[1]", "Expected `object`"),
        (b'{"partition_key": "k"}', "data is null"),
        (b'{"partition_key": "k", "data": null}', "data is null"),
        (b'{"partition_key": "k", "data_base64": "%"}', "valid base64"),
        (b'{"partition_key": "k", "data": "x", "data_base64": ""}', "both set"),
        (b"[" * 100_000, ""),
    ],
)
def test_an_invalid_line_has_a_reason(line: bytes, reason: str) -> None:
    error = parser(jsonl=True).parse(line)
    assert isinstance(error, str)
    assert reason in error


@pytest.mark.parametrize(
    ("key", "line", "expected"),
    [
        ("constant:all", b"x", "all"),
        ("field:who", b'{"who": "ann"}', "ann"),
        ("field:n", b'{"n": 17}', "17"),
        ("field:a:b", b'{"a:b": "c"}', "c"),
        ("random", b"x", "91b7584a2265b1f5"),
        ("none", b"x", None),
    ],
)
def test_keys_come_from_the_key_source(
    key: str, line: bytes, expected: str | None
) -> None:
    assert parser(key=key).parse(line) == Entry(line, expected)


@pytest.mark.parametrize("line", [b"x", b"[]", b'{"other": 1}'])
def test_a_line_without_the_keys_field_has_a_reason(line: bytes) -> None:
    assert isinstance(parser(key="field:who").parse(line), str)


@pytest.mark.parametrize("key", ["", "random:x", "none:x", "field:", "constant", "x:y"])
def test_unknown_key_sources_are_rejected(key: str) -> None:
    expected = "give random, field:NAME, constant:TEXT or none"
    with pytest.raises(ConfigurationError, match=expected):
        parse_key(key, random.Random(1))


def test_an_order_has_an_id_a_customer_a_total_and_a_time() -> None:
    order = json.loads(sample_order(7, random.Random(1), 1_767_225_600.5))
    assert order.keys() == {"order_id", "customer", "total", "ordered_at"}
    assert order["order_id"] == 7
    assert order["customer"].startswith("customer-")
    assert order["total"] >= 1
    assert order["ordered_at"] == "2026-01-01T00:00:00.500Z"


@pytest.mark.parametrize(("text", "rate"), [("100/s", 100), ("0.5", 0.5), ("1e3", 1e3)])
def test_a_rate_is_records_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "/s", "x", "0/s", "-1", "nan", "inf", "100/m"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 100/s"):
        parse_rate(text)


async def test_orders_end_at_the_limit_and_are_numbered() -> None:
    made = sample_orders(100, limit=12, chance=random.Random(1), wall=lambda: 0.0)
    portions = [portion async for portion in made]
    assert [len(portion) for portion in portions] == [5, 5, 2]
    numbers = [json.loads(line)["order_id"] for part in portions for line in part]
    assert numbers == list(range(1, 13))


async def test_the_last_line_may_lack_a_line_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo")
    portions = [portion async for portion in InputLines(str(file))]
    assert portions == [[b"one"], [b"two"]]


async def test_an_incomplete_line_is_dropped_when_stopped(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    os.write(end, b"one\ntw")
    lines = InputLines(str(pipe))
    assert await anext(aiter(lines)) == [b"one"]
    lines.stop()
    assert [portion async for portion in lines] == []
    os.close(end)
