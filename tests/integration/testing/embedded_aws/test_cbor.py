"""Test that the embedded Kinesis answers CBOR in the way that it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kinesumer.aws.http.client import KINESIS
from kinesumer.testing import EmbeddedAws
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.records import decode_page
from tests.support.cbor import decoded, needs_compiled

pytestmark = needs_compiled


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


async def test_a_request_that_is_not_cbor_is_refused(aws: EmbeddedAws) -> None:
    status, _, body = await call(aws, "ListStreams", b"{}")
    error = decoded(body)
    assert status == 400
    assert error["__type"] == "ValidationException"
    assert "not CBOR" in error["message"]
