"""Test the decoding of records that name a schema of Glue, against moto's registry."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from google.protobuf.wrappers_pb2 import StringValue

import kinesumer.aws.glue
from kinesumer import ConfigurationError
from kinesumer.core.backoff import Backoff
from kinesumer.decoding import registries
from kinesumer.errors import SchemaRegistryUnavailableError
from kinesumer.schemas import GlueDecoder
from tests.support.glue_registry import (
    SCHEMA,
    GlueRegistry,
    Order,
    avro,
    decoded,
    glue_data,
    serve_glue_registry,
)

VALUE = {"id": 7}
PROTO = 'syntax = "proto3"; message StringValue { string value = 1; }'


@pytest.fixture(scope="module")
def server() -> Iterator[GlueRegistry]:
    with serve_glue_registry() as registry:
        yield registry


@pytest.fixture
def registry(server: GlueRegistry, monkeypatch: pytest.MonkeyPatch) -> GlueRegistry:
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return server


async def test_each_format_is_decoded_with_and_without_compression(
    registry: GlueRegistry,
) -> None:
    plain = registry.register("AVRO", json.dumps(SCHEMA))
    jsons = registry.register("JSON", '{"type": "object"}')
    proto = registry.register("PROTOBUF", PROTO)
    message = StringValue(value="a")
    any_value = GlueDecoder()
    orders = GlueDecoder(type=Order)
    messages = GlueDecoder(type=StringValue)
    for compress in (False, True):
        data = glue_data(plain, avro(SCHEMA, VALUE), compress=compress)
        assert await decoded(any_value, data) == VALUE
        assert await decoded(orders, data) == Order(7)
        data = glue_data(jsons, b'{"id": 7}', compress=compress)
        assert await decoded(any_value, data) == VALUE
        assert await decoded(orders, data) == Order(7)
        payload = b"\x00" + message.SerializeToString()
        data = glue_data(proto, payload, compress=compress)
        assert await decoded(messages, data) == message


async def test_ids_and_data_that_do_not_fit_are_refused(registry: GlueRegistry) -> None:
    id = registry.register("AVRO", json.dumps(SCHEMA))
    data = glue_data(id, avro(SCHEMA, VALUE))
    unknown = uuid4()
    other = GlueDecoder(registry="other")
    messages = GlueDecoder(type=StringValue)
    decode = GlueDecoder(registry=registry.name, max_decompressed_bytes=100)
    assert await decoded(decode, data) == VALUE
    with pytest.raises(ValueError, match=f"us-east-1 has no schema version {unknown}"):
        await decoded(decode, glue_data(unknown, b""))
    with pytest.raises(ValueError, match=f"belongs to the registry {registry.name}"):
        await decoded(other, data)
    with pytest.raises(ValueError, match="has the format AVRO: type=StringValue"):
        await decoded(messages, data)
    proto = registry.register("PROTOBUF", PROTO)
    with pytest.raises(ValueError, match="type= must be the message class"):
        await decoded(decode, glue_data(proto, b"\x00"))
    with pytest.raises(ValueError, match="does not fit"):
        await decoded(decode, data[:-1])
    with pytest.raises(ValueError, match="the limit of 100 bytes"):
        await decoded(decode, bytes([3, 5]) + id.bytes + zlib.compress(bytes(101)))


async def test_the_registry_is_asked_with_an_assumed_role(
    registry: GlueRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = registry.register("JSON", "{}")
    role = "arn:aws:iam::123456789012:role/schemas"
    callers: list[str] = []
    ask = kinesumer.aws.glue.get_schema_version

    async def noted(opened: Any, id: Any) -> Any:
        keys = await opened.credentials.get_frozen_credentials()
        callers.append(keys.account_id)
        return await ask(opened, id)

    monkeypatch.setattr("kinesumer.aws.glue.get_schema_version", noted)
    decode = GlueDecoder(role_arn=role, external_id="agreed")
    assert await decoded(decode, glue_data(id, b"5")) == 5
    assert callers == ["123456789012"]
    decode = GlueDecoder(role_arn="reader")
    with pytest.raises(ConfigurationError, match="isn't the ARN of a role"):
        await decoded(decode, glue_data(id, b"5"))


async def test_a_registry_that_is_down_is_named_after_some_attempts(
    registry: GlueRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    hurried = registries.RETRIES._replace(backoff=Backoff(0.0, 0.0))
    monkeypatch.setattr(registries, "RETRIES", hurried)
    id = uuid4()
    decode = GlueDecoder()
    with pytest.raises(
        SchemaRegistryUnavailableError,
        match=rf"GetSchemaVersion on schema version {id} in us-east-1.*attempts",
    ):
        await decoded(decode, glue_data(id, b""))


async def test_a_schema_that_fastavro_cannot_read_is_refused(
    registry: GlueRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = kinesumer.aws.glue.SchemaVersion(
        '{"type": "record"}', "AVRO", "arn:aws:glue:us-east-1:1:schema/r/s"
    )

    async def broken(*arguments: Any) -> Any:
        return version

    monkeypatch.setattr("kinesumer.aws.glue.get_schema_version", broken)
    decode = GlueDecoder()
    with pytest.raises(ValueError, match="is not valid Avro"):
        await decoded(decode, glue_data(uuid4(), b""))


def test_options_that_are_invalid_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="give one of them"):
        GlueDecoder(type=StringValue, reader_schema=SCHEMA)
    with pytest.raises(ConfigurationError, match="is not a valid Avro schema"):
        GlueDecoder(reader_schema="no such type")
    with pytest.raises(ConfigurationError, match="must be 1 or more"):
        GlueDecoder(max_decompressed_bytes=-1)


@pytest.mark.parametrize("name", ["registry", "region", "role_arn", "external_id"])
def test_text_that_cannot_be_encoded_is_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: "\ud800"}
    with pytest.raises(ConfigurationError, match=name):
        GlueDecoder(type=dict, **wrong)
