"""Test that clients decode the records of a stream with schemas of Glue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from kinesumer import DecodeError, Kinesumer
from kinesumer.schemas import GlueDecoder
from kinesumer.testing import EmbeddedAws
from tests.support.glue_registry import (
    SCHEMA,
    GlueRegistry,
    Order,
    avro,
    glue_data,
    serve_glue_registry,
)


@pytest.fixture
def registry(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GlueRegistry]:
    """Serve a registry beside the embedded AWS, which has the stream "orders"."""
    with serve_glue_registry() as registry:
        monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", registry.url)
        kinesumer_aws.create_stream("orders", shards=1)
        yield registry


async def test_consume_delivers_values_and_skips_unknown_schemas(
    kinesumer_aws: EmbeddedAws, registry: GlueRegistry
) -> None:
    known = registry.register("AVRO", json.dumps(SCHEMA))
    kinesumer_aws.put("orders", glue_data(uuid4(), b""), "key")
    for number in range(20):
        data = glue_data(known, avro(SCHEMA, {"id": number}), compress=number % 2 == 0)
        kinesumer_aws.put("orders", data, f"key {number}")
    failed: list[DecodeError] = []
    seen: list[int] = []
    decode = GlueDecoder(type=Order, registry=registry.name)
    async with Kinesumer("billing") as client:
        async for record in client.consume(
            "orders",
            start="TRIM_HORIZON",
            decode=decode,
            on_decode_error=lambda record, error: failed.append(error),
            limit=20,
        ):
            order: Order = record.value
            seen.append(order.id)
    assert sorted(seen) == list(range(20))
    assert len(failed) == 1
    assert "has no schema version" in str(failed[0])
