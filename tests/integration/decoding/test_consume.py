"""Test that clients decode the records of a stream with schemas of Glue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

import kinesumer.blocking
from kinesumer import DecodeError, Kinesumer, Record
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


def put_orders(aws: EmbeddedAws, id: UUID, *, unknown: bool = False) -> None:
    if unknown:
        aws.put("orders", glue_data(uuid4(), b""), "key")
    for number in range(20):
        data = glue_data(id, avro(SCHEMA, {"id": number}), compress=number % 2 == 0)
        aws.put("orders", data, f"key {number}")


async def test_consume_delivers_values_and_skips_unknown_schemas(
    kinesumer_aws: EmbeddedAws, registry: GlueRegistry
) -> None:
    put_orders(
        kinesumer_aws, registry.register("AVRO", json.dumps(SCHEMA)), unknown=True
    )
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


async def test_a_handler_gets_values(
    kinesumer_aws: EmbeddedAws, registry: GlueRegistry
) -> None:
    put_orders(kinesumer_aws, registry.register("AVRO", json.dumps(SCHEMA)))
    seen: set[int] = set()

    async def handle(record: Record[Order]) -> None:
        seen.add(record.value.id)
        if len(seen) == 20:
            await client.leave()

    async with Kinesumer("billing") as client:
        await client.run(
            "orders", handle, start="TRIM_HORIZON", decode=GlueDecoder(type=Order)
        )
    assert seen == set(range(20))


def test_the_blocking_client_delivers_values(
    kinesumer_aws: EmbeddedAws, registry: GlueRegistry
) -> None:
    put_orders(kinesumer_aws, registry.register("AVRO", json.dumps(SCHEMA)))
    decode = GlueDecoder(type=Order)
    with kinesumer.blocking.Kinesumer("billing") as client:
        records = client.consume(
            "orders", start="TRIM_HORIZON", decode=decode, limit=20
        )
        assert sorted(record.value.id for record in records) == list(range(20))
