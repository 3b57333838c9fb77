"""Test that dead letters in a stream are read in spite of faults that pass."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.faults import Kind

LETTER = DeadLetter(
    app="billing",
    stream_arn="arn:aws:kinesis:us-east-1:000000000000:stream/orders",
    shard_id="shardId-000000000000",
    sequence_number="4959",
    data=b"order",
    error="ValueError: no price",
    attempts=3,
    failed_at=datetime(2026, 1, 31, tzinfo=UTC),
)


@pytest.mark.parametrize("kind", ["expired_iterator", "throttle", "error"])
async def test_reading_goes_on_after_a_fault_that_passes(
    kinesumer_aws: EmbeddedAws, kind: Kind
) -> None:
    """A shard iterator expires while the reader takes its time over a page."""
    kinesumer_aws.create_stream("letters", 1)
    async with ClientFactory() as clients:
        letters = await open_readable("kinesis:letters", clients)
        await letters.put(LETTER)
        kinesumer_aws.fault(kind, operation="GetRecords", count=1)
        found = [one.letter async for one in letters.read()]
    assert found == [LETTER]
