"""Test batches of columns from Kinesis to user code, and what is stored for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinesumer import (
    ColumnBatch,
    Config,
    Handler,
    Kinesumer,
    Producer,
    Start,
    Stream,
    blocking,
)
from kinesumer.errors import ConfigurationError
from kinesumer.model.records import PackedRecords
from kinesumer.testing import EmbeddedAws
from tests.support.cbor import needs_compiled

COUNT = 250


class Order(msgspec.Struct):
    number: int


@pytest.fixture
def aws(kinesumer_aws: EmbeddedAws) -> EmbeddedAws:
    """Return an AWS with a stream of one shard and numbered records."""
    kinesumer_aws.create_stream("orders", shards=1)
    for number in range(COUNT):
        kinesumer_aws.put("orders", b'{"number": %d}' % number, f"key-{number}")
    return kinesumer_aws


async def consume(
    limit: int | None = None,
    stream: str | Stream = "orders",
    app: str = "app",
    **options: Any,
) -> list[ColumnBatch]:
    """Return the batches of one client, until so many records were received."""
    async with Kinesumer(app) as client:
        records = client.consume(
            stream, start=Start.TRIM_HORIZON, limit=limit, **options
        )
        return [batch async for batch in records.batches(columns=True)]


def numbers(batches: list[ColumnBatch]) -> list[int]:
    """Return the numbers in the data of batches."""
    data = [each.as_py() for batch in batches for each in batch.data]
    return [msgspec.json.decode(each, type=Order).number for each in data]


@needs_compiled
@pytest.mark.usefixtures("aws")
async def test_columns_come_from_the_page_and_their_positions_are_stored() -> None:
    first = await consume(100)
    assert all(isinstance(batch.records, PackedRecords) for batch in first)
    assert first[0].partition_key[:2].to_pylist() == ["key-0", "key-1"]
    second = await consume(COUNT - 100)
    assert numbers(first + second) == [*range(COUNT)]
    numbers_of = first[0].sequence_number.to_pylist()
    assert numbers_of == sorted(numbers_of)


async def put_aggregate(count: int = 30) -> None:
    """Put one aggregate of numbered user records."""
    async with Producer("orders", aggregate=True) as producer:
        for number in range(COUNT, COUNT + count):
            data = b'{"number": %d}' % number
            await producer.put(data, partition_key=f"key-{number}")


def parts(batches: list[ColumnBatch]) -> list[int | None]:
    """Return the sub-sequence numbers of batches."""
    return [part for batch in batches for part in batch.sub_sequence_number.to_pylist()]


@pytest.mark.usefixtures("aws")
async def test_aggregates_come_as_columns_of_their_user_records() -> None:
    await put_aggregate()
    batches = await consume(COUNT + 30)
    assert numbers(batches) == [*range(COUNT + 30)]
    assert parts(batches) == [None] * COUNT + [*range(30)]
    keys = [key for batch in batches for key in batch.partition_key.to_pylist()]
    assert keys == [f"key-{number}" for number in range(COUNT + 30)]


@needs_compiled
@pytest.mark.usefixtures("aws")
async def test_no_record_of_an_aggregate_or_of_an_event_is_an_object() -> None:
    await put_aggregate()
    pushed = Stream("orders", fan_out="columns")
    streams: dict[str, str | Stream] = {"polls": "orders", "subscribes": pushed}
    for app, stream in streams.items():
        batches = await consume(COUNT + 30, stream, app)
        assert numbers(batches) == [*range(COUNT + 30)]
        assert parts(batches)[-30:] == [*range(30)]
        assert all(isinstance(batch.records, PackedRecords) for batch in batches)


@pytest.mark.usefixtures("aws")
async def test_positions_within_an_aggregate_are_stored_and_end_limits() -> None:
    await put_aggregate()
    first = await consume(COUNT + 7)
    assert parts(first)[-7:] == [*range(7)]
    manual = Config(commit="manual")
    async with Kinesumer("app", config=manual) as client:
        batches = client.consume("orders").batches(columns=True)
        batch = await anext(batches)
        assert batch.fence.position == batch.records[-1].position
        client.ack(batch[:3])
        await client.commit()
    assert parts(await consume(20)) == [*range(10, 30)]


@pytest.mark.usefixtures("aws")
async def test_a_user_record_that_cannot_be_handled_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    seen: list[int] = []

    async def handle(batch: ColumnBatch) -> None:
        found = numbers([batch])
        if COUNT + 5 in found:
            raise ValueError("unlucky")
        seen.extend(found)
        if len(seen) == COUNT + 29:
            await client.leave()

    await put_aggregate()
    letters = tmp_path / "letters"
    async with Kinesumer("app") as client:
        handler = Handler(handle, dead_letters=f"file:{letters}")
        await client.run({"orders": handler}, start=Start.TRIM_HORIZON)
    [letter] = map(msgspec.json.decode, letters.read_text().splitlines())
    assert letter["partition_key"] == f"key-{COUNT + 5}"
    assert letter["sub_sequence_number"] == 5


@pytest.mark.usefixtures("aws")
async def test_decoded_columns_have_the_fields_of_the_values() -> None:
    batches = await consume(COUNT, decode=Order)
    found = [each for batch in batches for each in batch.column("number").to_pylist()]
    assert found == [*range(COUNT)]
    assert "data" not in batches[0].to_arrow().column_names


@pytest.mark.usefixtures("aws")
async def test_a_slice_of_a_batch_is_acknowledged() -> None:
    manual = Config(commit="manual")
    async with Kinesumer("app", config=manual) as client:
        batches = client.consume("orders", start=Start.TRIM_HORIZON).batches(
            columns=True
        )
        batch = await anext(batches)
        client.ack(batch[:7])
        await client.commit()
    [rest, *_] = await consume(COUNT - 7)
    assert numbers([rest])[0] == 7


@pytest.mark.usefixtures("aws")
async def test_a_handler_of_columns_and_the_record_that_it_cannot_handle(
    tmp_path: Path,
) -> None:
    seen: list[int] = []

    async def handle(batch: ColumnBatch) -> None:
        found = numbers([batch])
        if 13 in found:
            raise ValueError("unlucky")
        seen.extend(found)
        if len(seen) == COUNT - 1:
            await client.leave()

    letters = tmp_path / "letters"
    async with Kinesumer("app") as client:
        handler = Handler(handle, dead_letters=f"file:{letters}")
        await client.run({"orders": handler}, start=Start.TRIM_HORIZON)
    assert sorted(seen) == [number for number in range(COUNT) if number != 13]
    [letter] = letters.read_text().splitlines()
    assert msgspec.json.decode(letter)["partition_key"] == "key-13"


@pytest.mark.usefixtures("aws")
def test_threads_get_columns_too() -> None:
    with blocking.Kinesumer("app") as client:
        records = client.consume("orders", start=Start.TRIM_HORIZON, limit=COUNT)
        assert numbers([*records.batches(columns=True)]) == [*range(COUNT)]


async def test_columns_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(_: Any) -> None: ...

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with Kinesumer("app", table="state") as client:
        with pytest.raises(ConfigurationError, match="kinesumer\\[arrow\\]"):
            client.consume("orders").batches(columns=True)
    async with Kinesumer("app", table="state") as client:
        with pytest.raises(ConfigurationError, match="kinesumer\\[arrow\\]"):
            await client.run("orders", handle, batch="columns")
