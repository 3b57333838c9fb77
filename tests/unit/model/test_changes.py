"""Test the changes of items: their values, and the types that they decode as."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from kinesumer.decoding.decoders import read_decoder
from kinesumer.errors import DecodeError
from kinesumer.model.changes import Change, read_change
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.streams import ShardKey

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers/stream/2026-01-31"
SOURCE = Source(Fence(ShardKey(ARN, "shardId-1"), 1), 5, 5)
KEYS = {"id": {"S": "c-1"}}
ITEM: dict[str, Any] = {
    "id": {"S": "c-1"},
    "visits": {"N": "12345678901234567890"},
    "balance": {"N": "-12.50"},
    "photo": {"B": "/w=="},
    "active": {"BOOL": True},
    "note": {"NULL": True},
    "tags": {"SS": ["a", "b"]},
    "scores": {"NS": ["1", "2.5"]},
    "blobs": {"BS": ["AA=="]},
    "address": {"M": {"lines": {"L": [{"S": "x"}, {"N": "1"}, {"M": {}}]}}},
}
PLAIN = {
    "id": "c-1",
    "visits": 12345678901234567890,
    "balance": Decimal("-12.50"),
    "photo": b"\xff",
    "active": True,
    "note": None,
    "tags": {"a", "b"},
    "scores": {1, Decimal("2.5")},
    "blobs": {b"\0"},
    "address": {"lines": ["x", 1, {}]},
}


def body(kind: str, **parts: object) -> bytes:
    change = {"Keys": KEYS, "SequenceNumber": "7", **parts}
    return json.dumps({"eventName": kind, "dynamodb": change}).encode()


def record(kind: str, **parts: object) -> Record:
    return Record("7", body(kind, **parts), source=SOURCE)


def test_the_values_of_all_types_are_plain_values_of_python() -> None:
    change = read_change(body("MODIFY", NewImage=ITEM, OldImage=KEYS))
    assert change == Change("MODIFY", {"id": "c-1"}, PLAIN, {"id": "c-1"})
    assert type(change.new_image["visits"]) is int  # type: ignore[index]
    assert not change.expired


def test_images_that_the_view_type_lacks_are_none() -> None:
    assert record("INSERT").change == Change("INSERT", {"id": "c-1"}, None, None)


@pytest.mark.parametrize("name", ["PrincipalId", "principalId"])
def test_a_removal_by_the_time_to_live_is_an_expiry(name: str) -> None:
    removed = json.loads(body("REMOVE"))
    removed["userIdentity"] = {"type": "Service", name: "dynamodb.amazonaws.com"}
    assert read_change(json.dumps(removed).encode()).expired
    assert not record("REMOVE").change.expired


@pytest.mark.parametrize(
    "data",
    [
        b"secret",
        b'{"eventName":"INSERT"}',
        body("secret"),
        body("INSERT", NewImage={"x": {"secret": 1}}),
        body("INSERT", NewImage={"x": {"N": "secret"}}),
        body("INSERT", NewImage={"x": {"N": 5}}),
        body("INSERT", NewImage={"x": {"B": "secret!"}}),
        body("INSERT", NewImage={"x": {"SS": [5]}}),
        body("INSERT", NewImage={"x": {"L": [{}]}}),
        body("INSERT", NewImage={"x": {"M": {"y": {"S": "a", "N": "1"}}}}),
    ],
)
def test_data_without_a_change_is_an_error_that_does_not_quote_it(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"record 7 of stream table/customers") as got:
        _ = Record("7", data, source=SOURCE).change
    assert "secret" not in str(got.value)


class Struct(msgspec.Struct):
    """A customer."""

    id: str
    balance: Decimal = Decimal(0)
    visits: float = 0.0
    tags: set[str] = set()
    photo: bytes = b""


@dataclass
class Data:
    """A customer."""

    id: str
    balance: Decimal = Decimal(0)
    visits: float = 0.0
    tags: frozenset[str] = frozenset()
    photo: bytes = b""


class Model(pydantic.BaseModel):
    """A customer."""

    id: str
    balance: Decimal = Decimal(0)
    visits: float = 0.0
    tags: set[str] = set()
    photo: bytes = b""


@pytest.mark.parametrize("type_", [Struct, Data, Model])
def test_types_decode_from_the_newest_image(type_: type[Any]) -> None:
    decoder = read_decoder(type_)
    assert decoder is not None
    new = decoder.decode_now(
        record("MODIFY", NewImage=ITEM, OldImage={"id": {"S": ""}})
    )
    assert (new.id, new.balance, new.tags) == ("c-1", Decimal("-12.50"), {"a", "b"})
    assert (new.photo, new.visits) == (b"\xff", 12345678901234567890.0)
    old = decoder.decode_now(record("REMOVE", OldImage=ITEM))
    assert old == new
    assert decoder.decode_now(record("MODIFY", OldImage=ITEM)) == type_(id="c-1")


@pytest.mark.parametrize("type_", [Struct, Data, Model])
def test_an_item_of_another_type_is_an_error_of_its_record(type_: type[Any]) -> None:
    decoder = read_decoder(type_)
    assert decoder is not None
    wrong = record("INSERT", NewImage={"id": {"L": []}})
    with pytest.raises(DecodeError, match=r"record 7 of stream table/customers"):
        decoder.decode_now(wrong)
    assert decoder.try_json(wrong) is None


def test_a_record_of_kinesis_decodes_from_its_data_as_before() -> None:
    decoder = read_decoder(Struct)
    assert decoder is not None
    assert decoder.decode_now(Record("1", b'{"id":"c-2"}')) == Struct("c-2")
