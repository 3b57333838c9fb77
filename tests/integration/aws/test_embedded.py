"""Test reading with a role, and putting records, against the embedded AWS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    AccessDeniedError,
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.streams import Stream
from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.put_records import Entry

OTHER = "210987654321"


@pytest.fixture
def embedded(environment: pytest.MonkeyPatch) -> Iterator[EmbeddedAws]:
    """Start an embedded AWS, and point the environment to it."""
    with background(EmbeddedAws()) as aws:
        for name, value in aws.environment().items():
            environment.setenv(name, value)
        yield aws


@pytest.fixture
async def clients(embedded: EmbeddedAws) -> AsyncIterator[ClientFactory]:
    """Open AWS clients of the default account."""
    async with ClientFactory() as clients:
        yield clients


async def test_keys_of_a_role_that_live_for_two_seconds_never_interrupt_reading(
    embedded: EmbeddedAws,
) -> None:
    role = embedded.create_role("reader", account=OTHER, session_seconds=2)
    embedded.create_stream("orders", account=OTHER)
    # AWS's clock is an hour ahead, so only its time gives the lifetime of the keys.
    embedded.advance(3600)
    embedded.stop_clock()
    seconds = 0.0
    async with ClientFactory(now=lambda: seconds) as clients:
        source = await open_source(clients, Stream("orders", role_arn=role.arn))
        for _ in range(30):
            await source.list_shards()
            embedded.advance(0.1)
            seconds += 0.1
    assert embedded.journal.count("sts", "AssumeRole") >= 2


async def test_a_request_that_fails_as_a_whole_says_how(
    embedded: EmbeddedAws, clients: ClientFactory
) -> None:
    embedded.create_stream("orders")
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
