"""Test the decoding of records that name a schema of a Confluent registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from google.protobuf.wrappers_pb2 import StringValue

from kinesumer import ConfigurationError, FatalError
from kinesumer.core.backoff import Backoff
from kinesumer.decoding import confluent_api, registries
from kinesumer.errors import SchemaRegistryUnavailableError
from kinesumer.schemas import ConfluentDecoder
from kinesumer.testing import record
from tests.support.glue_registry import avro, decoded

ORDER: Any = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "int"}],
}
PAYMENT: Any = {
    "type": "record",
    "name": "shop.Payment",
    "fields": [{"name": "order", "type": "shop.Order"}],
}


class StubRegistry:
    """Serves JSON documents by path, and lists the requests."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.requests: list[str] = []
        self.authorization: list[str | None] = []
        self.failures: list[int] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        path = request.raw_path
        self.requests.append(path)
        self.authorization.append(request.headers.get("Authorization"))
        if self.failures:
            return web.Response(status=self.failures.pop(0), text="<busy>")
        if path not in self.documents:
            missing = {"error_code": 40403, "message": "Schema not found"}
            return web.json_response(missing, status=404)
        return web.json_response(self.documents[path])

    def add(self, id: int, schema: Any, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.documents[f"/api/schemas/ids/{id}"] = {"schema": text, **more}


@pytest.fixture
async def registry(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StubRegistry]:
    hurried = registries.RETRIES._replace(backoff=Backoff(0.0, 0.0))
    monkeypatch.setattr(registries, "RETRIES", hurried)
    stub = StubRegistry()
    runner = web.AppRunner(server := web.Application())
    server.router.add_get("/{path:.*}", stub.answer)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/"
    yield stub
    await runner.cleanup()


def framed(id: int, payload: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + payload


async def test_each_format_is_decoded(registry: StubRegistry) -> None:
    registry.add(1, ORDER)
    registry.add(2, "{}", schemaType="JSON")
    registry.add(3, "message StringValue {}", schemaType="PROTOBUF")
    message = StringValue(value="a")
    decode = ConfluentDecoder(registry.url)
    messages = ConfluentDecoder(registry.url, type=StringValue)
    assert await decoded(decode, framed(1, avro(ORDER, {"id": 7}))) == {"id": 7}
    assert await decoded(decode, framed(2, b'{"id": 8}')) == {"id": 8}
    for indexes in (b"\x00", b"\x04\x02\x00"):
        data = framed(3, indexes + message.SerializeToString())
        assert await decoded(messages, data) == message


@pytest.mark.parametrize("schema", [PAYMENT, ["shop.Payment", "shop.Order"]])
async def test_schemas_that_a_schema_refers_to_are_fetched(
    registry: StubRegistry, schema: Any
) -> None:
    refers = [{"name": "shop.Order", "subject": "a/b", "version": 2}]
    nested = [{"name": "shop.Payment", "subject": "c", "version": 1}, *refers]
    is_union = isinstance(schema, list)
    registry.add(1, schema, references=nested if is_union else refers)
    subjects = registry.documents
    subjects["/api/subjects/a%2Fb/versions/2"] = {"schema": json.dumps(ORDER)}
    subjects["/api/subjects/c/versions/1"] = {
        "schema": json.dumps(PAYMENT),
        "references": refers,
    }
    payload = (b"\x00" if is_union else b"") + b"\x0e"
    decode = ConfluentDecoder(registry.url)
    assert await decoded(decode, framed(1, payload)) == {"order": {"id": 7}}
    assert len(registry.requests) == (3 if is_union else 2)


async def test_references_in_a_cycle_or_to_nothing_are_refused(
    registry: StubRegistry,
) -> None:
    registry.add(1, ORDER, references=[{"name": "x", "subject": "x", "version": 1}])
    registry.documents["/api/subjects/x/versions/1"] = {
        "schema": json.dumps(ORDER),
        "references": [{"name": "x", "subject": "x", "version": 1}],
    }
    registry.add(2, ORDER, references=[{"name": "y", "subject": "y", "version": 1}])
    decode = ConfluentDecoder(registry.url)
    with pytest.raises(ValueError, match="references in a cycle"):
        await decoded(decode, framed(1, b""))
    with pytest.raises(ValueError, match="refers to y, version 1, which does not"):
        await decoded(decode, framed(2, b""))


async def test_a_thousand_records_and_fifty_tasks_cause_one_request(
    registry: StubRegistry,
) -> None:
    registry.add(1, ORDER)
    made = record(framed(1, b"\x0e"))
    decode = ConfluentDecoder(registry.url, user="u", password="p")
    assert await asyncio.gather(*(decode(made) for _ in range(50)))
    assert all(decode(made) == {"id": 7} for _ in range(1000))
    assert len(registry.requests) == 1
    assert registry.authorization == ["Basic dTpw"]


async def test_the_registrys_errors_say_what_to_do(
    registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(1, ORDER)
    registry.add(2, ORDER)
    decode = ConfluentDecoder(registry.url)
    registry.failures = [503, 429]
    assert await decoded(decode, framed(1, b"\x0e")) == {"id": 7}
    registry.failures = [500] * 6
    with pytest.raises(SchemaRegistryUnavailableError, match=r"ids/2 .*6 attempts"):
        await decoded(decode, framed(2, b"\x0e"))
    registry.failures = [401]
    with pytest.raises(FatalError, match="check user= and password="):
        await decoded(decode, framed(2, b"\x0e"))
    registry.failures = [404]
    with pytest.raises(ConfigurationError, match="url= is that of a registry"):
        await decoded(decode, framed(2, b"\x0e"))
    with pytest.raises(ValueError, match="has no schema 9"):
        await decoded(decode, framed(9, b""))
    registry.documents["/api/schemas/ids/3"] = ["not", "a", "schema"]
    with pytest.raises(SchemaRegistryUnavailableError, match="is not a schema"):
        await decoded(decode, framed(3, b""))
    monkeypatch.setattr(confluent_api, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(SchemaRegistryUnavailableError, match="longer than 10"):
        await decoded(decode, framed(2, b""))


@pytest.mark.parametrize(
    "url",
    ["registry", "ftp://host", "http://", "http://host:x", "http://host/?a=b"],
)
def test_a_url_that_is_not_a_registrys_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        ConfluentDecoder(url)


def test_a_password_in_the_url_or_alone_is_refused_and_not_shown() -> None:
    for mark in ("", "x/", "x#", "x?", "x@"):
        with pytest.raises(ConfigurationError, match="remove them") as raised:
            ConfluentDecoder(f"http://user:{mark}secret@host")
        assert "secret" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="or neither"):
        ConfluentDecoder("http://host", user="user")
    with pytest.raises(ConfigurationError, match="colon"):
        ConfluentDecoder("http://host", user="a:b", password="c")


@pytest.mark.parametrize("wrong", [{"user": "\ud800"}, {"password": "p\ud800"}])
def test_text_that_cannot_be_encoded_is_refused_without_the_password(
    wrong: dict[str, str],
) -> None:
    given = {"user": "user", "password": "password", **wrong}
    with pytest.raises(ConfigurationError, match="that UTF-8 can encode") as raised:
        ConfluentDecoder("https://registry.example.com", type=dict, **given)
    assert "p\\ud800" not in str(raised.value)
    with pytest.raises(ConfigurationError, match="url="):
        ConfluentDecoder("https://\ud800", type=dict)
