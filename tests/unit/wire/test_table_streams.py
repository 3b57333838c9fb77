"""Test how the responses of DynamoDB Streams are decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Record
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.wire.table_streams import (
    decode_change_page,
    decode_stream_page,
    is_own_row,
    key_text,
    shard_place,
)

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers/stream/2026-01-31"
SHARD = "shardId-00000001414576573621-f55eea83"


def change(number: str = "111", created: object = 99.0, **keys: Any) -> dict[str, Any]:
    keys = keys or {"id": {"S": "c-1"}}
    about = {"Keys": keys, "SequenceNumber": number}
    return {
        "eventName": "INSERT",
        "dynamodb": {**about, "ApproximateCreationDateTime": created},
    }


def page(*changes: object, **fields: object) -> bytes:
    return json.dumps({"Records": changes, **fields}).encode()


def test_a_description_has_the_shards_and_where_its_next_page_begins() -> None:
    parent = {
        "ShardId": SHARD,
        "SequenceNumberRange": {
            "StartingSequenceNumber": "1",
            "EndingSequenceNumber": "20500000000000000910398",
        },
    }
    child = {"ShardId": "child", "ParentShardId": SHARD}
    description = {
        "StreamArn": ARN,
        "StreamStatus": "ENABLED",
        "TableName": "customers",
        "StreamViewType": "KEYS_ONLY",
        "CreationRequestDateTime": 7.5,
        "Shards": [parent, child],
        "LastEvaluatedShardId": "child",
    }
    found = decode_stream_page(json.dumps({"StreamDescription": description}).encode())
    first, second = shard_place(SHARD), shard_place("child")
    assert found.shards == [
        Shard(SHARD, first, first, (), "20500000000000000910398"),
        Shard("child", second, second, (SHARD,)),
    ]
    assert found.shards[0].closed
    assert not found.shards[1].closed
    assert (found.arn, found.last, found.created_at) == (ARN, "child", 7.5)
    assert (found.status, found.kinesis_status) == ("ENABLED", "ACTIVE")
    assert (found.table, found.view_type) == ("customers", "KEYS_ONLY")


def test_places_are_the_same_for_all_clients_and_spread_over_all_hash_keys() -> None:
    places = [shard_place(f"shardId-{number}") for number in range(1000)]
    for tenth in range(10):
        low = tenth * HASH_KEYS // 10
        assert 60 < sum(low <= place < low + HASH_KEYS // 10 for place in places) < 140


def test_records_have_the_raw_json_the_key_and_the_time_of_the_change() -> None:
    text = b'{ "dynamodb": {"Keys":{"id":{"S":"c-1"}}, "SequenceNumber":"300",'
    text += b'"ApproximateCreationDateTime":1.46480646E9} }'
    found = decode_change_page(b'{"Records":[' + text + b"]}", 1464806461.0)
    assert found.records == [Record("300", text, '{"id":"c-1"}', 1464806460.0)]
    assert (found.next_iterator, found.millis_behind) == (None, 0)
    assert found.wire_bytes == len(text) + 14


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"sk": {"N": "17"}, "pk": {"S": 'a"b'}}, r'{"pk":"a\"b","sk":17}'),
        ({"pk": {"B": "/w=="}}, '{"pk":"/w=="}'),
        ({"pk": {"N": "-1.5"}}, '{"pk":-1.5}'),
    ],
)
def test_a_key_has_one_text(keys: dict[str, dict[str, str]], text: str) -> None:
    assert key_text(keys) == text
    assert key_text(dict(reversed(keys.items()))) == text


@pytest.mark.parametrize(
    ("body", "behind"),
    [
        (page(NextShardIterator="x"), 0),
        (page(change(created=99.0), NextShardIterator="x"), 0),
        (page(change(created=90.0), NextShardIterator="x"), 9000),
        (page(change(id={"S": "x" * 300_000}, created=100.0)), 1),
    ],
    ids=["empty", "new", "old", "large"],
)
def test_how_far_a_page_is_behind_follows_from_its_last_record_and_its_size(
    body: bytes, behind: int
) -> None:
    assert decode_change_page(body, 100.0).millis_behind == behind


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        page({}),
        page(change("x")),
        page(change("")),
        page(change(created=-1)),
        page(change(id={"S": "a", "N": "1"})),
        page(change(id={"S": 5})),
    ],
)
def test_a_page_of_another_service_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(SourceUnavailableError, match="isn't from DynamoDB Streams"):
        decode_change_page(body, 100.0)


@pytest.mark.parametrize(
    ("pk", "sk", "expected"),
    [
        ("member#app", "c1", True),
        ("group#app", "stream#x", True),
        (f"shard#app#{ARN}", "0/shardId-1", True),
        ("apps", "app", True),
        ("member#other", "app", False),
        ("member#app2", "c1", False),
        ("apps", "other", False),
        ("app", "app", False),
    ],
)
def test_a_change_of_the_state_store_belongs_to_the_app_of_its_row(
    pk: str, sk: str, expected: bool
) -> None:
    key = key_text({"pk": {"S": pk}, "sk": {"S": sk}})
    assert is_own_row("app", Record("1", b"{}", key)) is expected
