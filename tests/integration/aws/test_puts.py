"""Putting records through the adapter, into the embedded AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    AccessDeniedError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.local import EmbeddedAws, background
from kinesumer.local.kinesis.limits import Limits
from kinesumer.model.streams import HASH_KEYS, Start, Stream
from kinesumer.wire.put_records import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def embedded(environment: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """Shards that take 3 MB a second; the environment doesn't say where it is."""
    limits = Limits(write_bytes_per_second=3 << 20)
    with background(EmbeddedAws(limits=limits)) as aws:
        for name, value in aws.environment().items():
            if "ENDPOINT" not in name:
                environment.setenv(name, value)
        aws.create_stream("orders", shards=2)
        aws.stop_clock()
        yield aws


def reaching(aws: EmbeddedAws) -> ClientFactory:
    return ClientFactory(endpoints={"kinesis": aws.url})


async def test_records_are_put_and_each_ones_fate_is_told(
    embedded: EmbeddedAws,
) -> None:
    megabyte = bytes((1 << 20) - 1)
    entries = [Entry(megabyte, "k", "0") for _ in range(4)]
    entries.append(Entry("größer".encode(), "ä", str(HASH_KEYS - 1)))
    async with reaching(embedded) as clients:
        source = await open_source(clients, Stream("orders"))
        await source.describe()
        results = await source.put_records(entries)
        throttled = "ProvisionedThroughputExceededException"
        assert [result.error_code for result in results] == [
            None,
            None,
            None,
            throttled,
            None,
        ]
        assert results[4].shard_id == "shardId-000000000001"
        iterator = await source.get_iterator("shardId-000000000001", Start.TRIM_HORIZON)
        page = await source.get_records(iterator, 10)
    [record] = page.records
    assert (record.data.decode(), record.partition_key) == ("größer", "ä")
    assert record.sequence_number == results[4].sequence_number


async def test_a_request_that_fails_as_a_whole_says_how(
    embedded: EmbeddedAws,
) -> None:
    async with reaching(embedded) as clients:
        source = await open_source(clients, Stream("orders"))
        embedded.fault("throttle", operation="PutRecords", count=1)
        with pytest.raises(SourceThrottledError):
            await source.put_records([Entry(b"x", "k")])
        embedded.fault("drop", operation="PutRecords", count=1)
        with pytest.raises(SourceUnavailableError):
            await source.put_records([Entry(b"x", "k")])
        embedded.deny("kinesis:PutRecords")
        with pytest.raises(AccessDeniedError):
            await source.put_records([Entry(b"x", "k")])
        embedded.allow()
        missing = await open_source(clients, Stream("payments"))
        with pytest.raises(StreamMissingError):
            await missing.put_records([Entry(b"x", "k")])
