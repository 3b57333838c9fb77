"""Test the decoding of Avro and Protobuf with a fixed schema."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.wrappers_pb2 import StringValue

from kinesumer import ConfigurationError
from kinesumer.schemas import AvroDecoder, ProtobufDecoder
from kinesumer.testing import record
from tests.support.glue_registry import avro

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
VALUE: dict[str, Any] = {"id": 7, "at": datetime(2026, 1, 31, tzinfo=UTC)}
LIST: Any = {
    "type": "record",
    "name": "List",
    "fields": [{"name": "next", "type": ["null", "List"]}],
}


@dataclass
class Order:
    id: int
    at: datetime


def test_a_record_is_decoded_with_the_writers_schema() -> None:
    data = record(avro(ORDER, VALUE))
    assert AvroDecoder(ORDER)(data) == VALUE
    assert AvroDecoder(json.dumps(ORDER))(data) == VALUE
    assert AvroDecoder(ORDER, type=Order)(data) == Order(7, VALUE["at"])


def test_a_value_is_resolved_to_the_readers_schema() -> None:
    fields = [*ORDER["fields"][:1], {"name": "note", "type": "string", "default": "-"}]
    decode = AvroDecoder(ORDER, reader_schema={**ORDER, "fields": fields})
    assert decode(record(avro(ORDER, VALUE))) == {"id": 7, "note": "-"}


@pytest.mark.parametrize("schema", ["int", '"int"', ["null", "int"]])
def test_a_schema_need_not_be_a_record(schema: Any) -> None:
    plain = "int" if isinstance(schema, str) else schema
    assert AvroDecoder(schema)(record(avro(plain, 5))) == 5
    assert AvroDecoder(schema, reader_schema="long")(record(avro(plain, 5))) == 5


def test_data_of_another_schema_is_refused() -> None:
    data = avro(ORDER, VALUE)
    with pytest.raises(ValueError, match="does not fit its Avro schema"):
        AvroDecoder(ORDER)(record(data[:-1]))
    with pytest.raises(ValueError, match="2 bytes follow the Avro value"):
        AvroDecoder(ORDER)(record(data + b"!!"))
    with pytest.raises(msgspec.ValidationError):
        AvroDecoder(ORDER, type=dict[str, int])(record(data))


def test_deeply_nested_data_is_refused_and_does_not_end_the_process() -> None:
    decode = AvroDecoder(LIST)
    assert decode(record(b"\x02\x00")) == {"next": {"next": None}}
    with pytest.raises(ValueError, match="RecursionError"):
        decode(record(b"\x02" * 1_000_000 + b"\x00"))


@pytest.mark.parametrize("schema", ["no such type", {"type": "record"}, "{", 5])
def test_an_invalid_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a valid Avro schema"):
        AvroDecoder(schema)


def test_without_fastavro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'kinesumer\[avro\]'"):
        AvroDecoder(ORDER)


def test_a_protobuf_message_is_decoded() -> None:
    decode = ProtobufDecoder(StringValue)
    assert decode(record(StringValue(value="a").SerializeToString())).value == "a"
    with pytest.raises(ProtobufDecodeError):
        decode(record(b"\xff"))
    not_a_message: Any = Order
    with pytest.raises(ConfigurationError, match="protoc generated"):
        ProtobufDecoder(not_a_message)
