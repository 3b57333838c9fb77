"""Test that the embedded Kinesis answers CBOR in the way that it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws.http.client import KINESIS
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.decoder import compiled
from kinesumer.wire.records import decode_page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


pytestmark = pytest.mark.skipif(
    compiled is None, reason="the decoder wasn't compiled: no C compiler"
)


def decoded(body: bytes) -> Any:
    assert compiled is not None
    return compiled.decode(body)


@pytest.fixture
async def aws() -> AsyncIterator[EmbeddedAws]:
    async with EmbeddedAws() as aws:
        aws.create_stream("orders")
        yield aws


async def call(
    aws: EmbeddedAws, operation: str, body: bytes | dict[str, Any]
) -> tuple[int, str, bytes]:
    """Send a request in CBOR. Return the answer's status, content type and body."""
    headers = {
        "Content-Type": CBOR_TYPE,
        "X-Amz-Target": f"{KINESIS.target}.{operation}",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={aws.account().access_key_id}/"
        "20260101/us-east-1/kinesis/aws4_request, SignedHeaders=host, Signature=0",
    }
    data = body if isinstance(body, bytes) else encode(body)
    async with (
        aiohttp.ClientSession() as session,
        session.post(aws.url, data=data, headers=headers) as answer,
    ):
        return answer.status, answer.content_type, await answer.read()


async def read(aws: EmbeddedAws, operation: str, body: dict[str, Any]) -> Any:
    status, content_type, answer = await call(aws, operation, body)
    assert (status, content_type) == (200, CBOR_TYPE)
    return decoded(answer)


async def test_records_are_put_and_read_in_cbor(aws: EmbeddedAws) -> None:
    put = {"StreamName": "orders", "PartitionKey": "k", "Data": b"\x00\xff"}
    stored = await read(aws, "PutRecord", put)
    at = {
        "StreamName": "orders",
        "ShardId": stored["ShardId"],
        "ShardIteratorType": "AT_TIMESTAMP",
        "Timestamp": Milliseconds(1_000),
    }
    iterator = (await read(aws, "GetShardIterator", at))["ShardIterator"]
    _, content_type, body = await call(aws, "GetRecords", {"ShardIterator": iterator})
    page = decode_page(body)
    [record] = page.records
    assert (content_type, page.is_cbor) == (CBOR_TYPE, True)
    assert (record.data, record.partition_key) == (b"\x00\xff", "k")
    assert record.sequence_number == stored["SequenceNumber"]
    assert record.arrived_at is not None
    assert record.arrived_at.year >= 2026


async def test_times_are_in_milliseconds(aws: EmbeddedAws) -> None:
    _, _, body = await call(aws, "DescribeStreamSummary", {"StreamName": "orders"})
    name = encode("StreamCreationTimestamp")
    assert body[body.index(name) + len(name) :].startswith(b"\xc1\x1b\x00\x00\x01")


async def test_an_error_is_cbor_too(aws: EmbeddedAws) -> None:
    status, content_type, body = await call(
        aws, "DescribeStreamSummary", {"StreamName": "lost"}
    )
    error = decoded(body)
    assert (status, content_type) == (400, CBOR_TYPE)
    assert error["__type"] == "ResourceNotFoundException"


async def test_a_request_that_is_not_cbor_is_refused(aws: EmbeddedAws) -> None:
    status, _, body = await call(aws, "ListStreams", b"{}")
    error = decoded(body)
    assert status == 400
    assert error["__type"] == "ValidationException"
    assert "not CBOR" in error["message"]


async def test_a_fault_can_close_the_connections_of_requests_in_cbor_only(
    aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment().items():
        monkeypatch.setenv(name, value)
    aws.create_table("table")
    for number in range(20):
        aws.put("orders", b"%d" % number, "key")
    aws.fault("refuse", operation="GetRecords", content_type="cbor")
    place = {"StreamName": "orders", "ShardId": "shardId-000000000000"}
    begin = {**place, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = (await read(aws, "GetShardIterator", begin))["ShardIterator"]
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await call(aws, "GetRecords", {"ShardIterator": iterator})
    config = Config(rebalance_delay_seconds=0.1, leader_interval_seconds=0.1)
    seen = []
    async with Kinesumer("app", table="table", config=config) as client:
        async for record in client.consume("orders", start=Start.TRIM_HORIZON):
            seen.append(record.data)
            if len(seen) == 20:
                break
    assert sorted(map(int, seen)) == [*range(20)]
