"""Provide a dead letter, and targets of dead letters."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
from moto.server import ThreadedMotoServer

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter
from kinesumer.handlers.dead_letters.letter import (
    ReadableDeadLetters,
    StoredEntry,
)

LETTER = DeadLetter(
    app="bill/ing",
    stream_arn="arn:aws:kinesis:us-east-1:000000000000:stream/orders",
    shard_id="shardId-000000000000",
    sequence_number="4959",
    data=b"\xff\x00",
    error="ValueError: \ufffe",
    attempts=3,
    failed_at=datetime(2026, 1, 31, tzinfo=UTC),
)


NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
async def clients(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ClientFactory]:
    for name in ("AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, url)
    monkeypatch.setattr("kinesumer.handlers.dead_letters.sqs.WAIT_SECONDS", 0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    async with ClientFactory() as clients:
        yield clients


@pytest.fixture(params=["standard", "fifo", "s3"])
async def target(clients: ClientFactory, request: pytest.FixtureRequest) -> str:
    """Create an empty target with a new name, since moto's servers share their data."""
    name = f"letters-{next(NUMBERS)}"
    if request.param == "s3":
        s3 = (await clients.open("s3")).client
        await s3.create_bucket(Bucket=name)
        return f"s3://{name}/dead"
    sqs = (await clients.open("sqs")).client
    fifo = {"FifoQueue": "true"} if request.param == "fifo" else {}
    name += ".fifo" if fifo else ""
    answer = await sqs.create_queue(QueueName=name, Attributes=fifo)
    return f"sqs:{answer['QueueUrl']}"


async def stored(letters: ReadableDeadLetters) -> list[StoredEntry]:
    return [one async for one in letters.read()]
