"""Test the requests of DynamoDB Streams on the model of tables' streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kinesumer.testing import AwsError, TableStreamSettings
from kinesumer.testing.kinesis.service import Caller
from kinesumer.testing.table_streams.changes import Change
from kinesumer.testing.table_streams.requests import decode
from kinesumer.testing.table_streams.service import TableStreams

TABLE = "arn:aws:dynamodb:eu-west-1:111122223333:table/orders"
OTHER = "arn:aws:dynamodb:eu-west-1:111122223333:table/others"
CALLER = Caller("111122223333", "eu-west-1")
SCHEMA = [{"AttributeName": "id", "KeyType": "HASH"}]
START = 1_800_000_000.0
DAY = 86_400.0
GONE_SHARD = "shardId-00000000000000000000-00000000"


class Service:
    """Calls the model at a time that the test advances."""

    def __init__(self, settings: TableStreamSettings | None = None) -> None:
        self.now = START
        self.streams = TableStreams(settings or TableStreamSettings())

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        request = decode(operation, msgspec.json.encode(parameters))
        answer = self.streams.call(request, CALLER, self.now)
        content: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
        return content

    def enable(self, table: str = TABLE) -> str:
        self.streams.enable(table, SCHEMA, "KEYS_ONLY", self.now)
        return self.arn(table)

    def arn(self, table: str = TABLE) -> str:
        arn: str = self.streams.description(table)["LatestStreamArn"]
        return arn

    def insert(self, *keys: str) -> None:
        for key in keys:
            item = {"id": {"S": key}}
            self.streams.append(TABLE, Change(item, None, item), self.now)

    def describe(self, arn: str, **parameters: Any) -> dict[str, Any]:
        answer = self.call("DescribeStream", StreamArn=arn, **parameters)
        description: dict[str, Any] = answer["StreamDescription"]
        return description

    def shards(self) -> list[dict[str, Any]]:
        shards: list[dict[str, Any]] = self.describe(self.arn())["Shards"]
        return shards

    def iterator(self, kind: str, shard: str | None = None, **place: Any) -> str:
        answer = self.call(
            "GetShardIterator",
            StreamArn=self.arn(),
            ShardId=shard or self.shards()[0]["ShardId"],
            ShardIteratorType=kind,
            **place,
        )
        iterator: str = answer["ShardIterator"]
        return iterator

    def read(self, iterator: str, **parameters: Any) -> dict[str, Any]:
        return self.call("GetRecords", ShardIterator=iterator, **parameters)


def keys(page: dict[str, Any]) -> list[str]:
    return [record["dynamodb"]["Keys"]["id"]["S"] for record in page["Records"]]


@pytest.fixture
def service() -> Service:
    service = Service()
    service.enable()
    return service


def refusal(code: str) -> Any:
    return pytest.raises(AwsError, match=f"^{code}: ")


def test_a_stream_that_is_enabled_again_is_another_one(service: Service) -> None:
    first = service.arn()
    service.streams.disable(TABLE, service.now)
    second = service.enable()
    assert first != second
    names = [each["StreamArn"] for each in service.call("ListStreams")["Streams"]]
    assert sorted(names) == sorted([first, second])
    statuses = {arn: service.describe(arn)["StreamStatus"] for arn in names}
    assert statuses == {first: "DISABLED", second: "ENABLED"}


def test_a_stream_is_enabled_and_disabled_once(service: Service) -> None:
    with refusal("ValidationException"):
        service.enable()
    service.streams.disable(TABLE, service.now)
    with refusal("ValidationException"):
        service.streams.disable(TABLE, service.now)


def test_a_disabled_stream_stays_readable_for_a_day(service: Service) -> None:
    service.insert("a")
    service.streams.disable(TABLE, service.now)
    assert "StreamSpecification" not in service.streams.description(TABLE)
    service.now += DAY - 1
    page = service.read(service.iterator("TRIM_HORIZON"))
    assert keys(page) == ["a"]
    assert "NextShardIterator" not in page
    service.now += 3
    with refusal("ResourceNotFoundException"):
        service.shards()
    assert service.call("ListStreams")["Streams"] == []


def test_the_stream_of_a_deleted_table_stays_readable(service: Service) -> None:
    arn = service.arn()
    service.streams.delete_table(TABLE, service.now)
    assert service.streams.description(TABLE) == {}
    assert service.describe(arn)["StreamStatus"] == "DISABLED"


def test_streams_are_listed_in_pages_and_by_table(service: Service) -> None:
    other = service.enable(OTHER)
    page = service.call("ListStreams", Limit=1)
    assert page["LastEvaluatedStreamArn"] == service.arn()
    rest = service.call("ListStreams", ExclusiveStartStreamArn=service.arn())
    assert [each["StreamArn"] for each in rest["Streams"]] == [other]
    assert "LastEvaluatedStreamArn" not in rest
    (only,) = service.call("ListStreams", TableName="others")["Streams"]
    assert only == {
        "StreamArn": other,
        "TableName": "others",
        "StreamLabel": other.rpartition("/")[2],
    }


def test_shards_are_listed_in_pages() -> None:
    service = Service(TableStreamSettings(partitions=250))
    arn = service.enable()
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = service.describe(arn, **after)
        assert len(page["Shards"]) <= 100
        found += [shard["ShardId"] for shard in page["Shards"]]
        if "LastEvaluatedShardId" not in page:
            break
        after = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}
    assert len(set(found)) == len(found) == 250


def test_a_filter_selects_the_children_of_a_shard(service: Service) -> None:
    (parent,) = service.shards()
    stream = service.streams.enabled(TABLE, service.now)
    stream.split(parent["ShardId"], service.now)
    stream.roll_over(service.now)
    chosen = {"Type": "CHILD_SHARDS", "ShardId": parent["ShardId"]}
    children = service.describe(service.arn(), ShardFilter=chosen)["Shards"]
    assert len(children) == 2
    assert {each["ParentShardId"] for each in children} == {parent["ShardId"]}
    assert len(service.shards()) == 5


def test_an_iterator_begins_where_it_was_asked_to(service: Service) -> None:
    service.insert("a", "b", "c")
    page = service.read(service.iterator("TRIM_HORIZON"))
    number = page["Records"][1]["dynamodb"]["SequenceNumber"]
    assert keys(page) == ["a", "b", "c"]
    at = service.iterator("AT_SEQUENCE_NUMBER", SequenceNumber=number)
    assert keys(service.read(at)) == ["b", "c"]
    after = service.iterator("AFTER_SEQUENCE_NUMBER", SequenceNumber=number)
    assert keys(service.read(after)) == ["c"]
    latest = service.iterator("LATEST")
    service.insert("d")
    assert keys(service.read(latest)) == ["d"]
    assert keys(service.read(page["NextShardIterator"])) == ["d"]


def test_a_time_selects_the_records_of_its_second_and_later(service: Service) -> None:
    service.insert("a")
    service.now += 10.5
    service.insert("b")
    assert keys(service.read(service.iterator("AT_TIMESTAMP", Timestamp=START))) == [
        "a",
        "b",
    ]
    for timestamp in (START + 1, START + 10):
        at = service.iterator("AT_TIMESTAMP", Timestamp=timestamp)
        assert keys(service.read(at)) == ["b"]
    # ApproximateCreationDateTime is rounded down to the second.
    later = service.iterator("AT_TIMESTAMP", Timestamp=START + 10.2)
    assert keys(service.read(later)) == []
    with refusal("ValidationException"):
        service.iterator("AT_TIMESTAMP", Timestamp=service.now + 1)
    with refusal("ValidationException"):
        service.iterator("AT_TIMESTAMP")


def test_the_last_page_of_a_closed_shard_has_no_next_iterator(
    service: Service,
) -> None:
    service.insert("a", "b")
    start = service.iterator("TRIM_HORIZON")
    assert "NextShardIterator" in service.read(start)
    service.streams.enabled(TABLE, service.now).roll_over(service.now)
    service.insert("c")
    first = service.read(start, Limit=1)
    assert keys(first) == ["a"]
    last = service.read(first["NextShardIterator"])
    assert keys(last) == ["b"]
    assert "NextShardIterator" not in last


def test_a_closed_shard_is_empty_after_its_ending_number(service: Service) -> None:
    service.insert("a")
    service.now += 1
    service.streams.enabled(TABLE, service.now).roll_over(service.now)
    closed = service.shards()[0]
    after = service.iterator(
        "AFTER_SEQUENCE_NUMBER",
        closed["ShardId"],
        SequenceNumber=closed["SequenceNumberRange"]["EndingSequenceNumber"],
    )
    assert service.read(after) == {"Records": []}


@pytest.mark.parametrize("number", ["0" * 21, "9" * 40, "1" * 22, "x" * 21, "٣" * 21])
def test_a_number_of_another_shard_is_refused(service: Service, number: str) -> None:
    with refusal("ValidationException"):
        service.iterator("AT_SEQUENCE_NUMBER", SequenceNumber=number)


def test_a_number_of_a_child_is_not_one_of_its_parent(service: Service) -> None:
    parent = service.shards()[0]["ShardId"]
    service.streams.enabled(TABLE, service.now).roll_over(service.now)
    (child,) = (each for each in service.shards() if each["ShardId"] != parent)
    number = child["SequenceNumberRange"]["StartingSequenceNumber"]
    with refusal("ValidationException"):
        service.iterator("AT_SEQUENCE_NUMBER", parent, SequenceNumber=number)


def test_a_place_by_number_needs_the_number(service: Service) -> None:
    with refusal("ValidationException"):
        service.iterator("AT_SEQUENCE_NUMBER")


def test_trimmed_records_are_refused_by_number_and_by_iterator() -> None:
    settings = TableStreamSettings(rollover_seconds=10 * DAY, iterator_seconds=10 * DAY)
    service = Service(settings)
    service.enable()
    service.insert("a")
    early = service.iterator("TRIM_HORIZON")
    number = service.read(early)["Records"][0]["dynamodb"]["SequenceNumber"]
    service.now += 1
    service.insert("b")
    service.now += DAY - 0.5
    with refusal("TrimmedDataAccessException"):
        service.read(early)
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        with refusal("TrimmedDataAccessException"):
            service.iterator(kind, SequenceNumber=number)
    assert keys(service.read(service.iterator("TRIM_HORIZON"))) == ["b"]


def test_an_iterator_expires_after_a_quarter_of_an_hour(service: Service) -> None:
    iterator = service.iterator("LATEST")
    service.now += 900
    following = service.read(iterator)["NextShardIterator"]
    service.now += 1
    with refusal("ExpiredIteratorException"):
        service.read(iterator)
    service.read(following)


def test_what_does_not_exist_is_not_found(service: Service) -> None:
    with refusal("ResourceNotFoundException"):
        service.describe(f"{TABLE}/stream/2026")
    with refusal("ResourceNotFoundException"):
        service.iterator("LATEST", GONE_SHARD)
    with refusal("ValidationException"):
        service.read("AAAA")
    with refusal("UnknownOperationException"):
        service.call("SubscribeToShard")


def test_the_iterator_of_a_shard_that_has_expired_is_refused(service: Service) -> None:
    service.now += 14_000
    iterator = service.iterator("TRIM_HORIZON")
    stream = service.streams.enabled(TABLE, service.now)
    stream.settings = replace(stream.settings, retention_seconds=60)
    service.now += 800
    with refusal("ResourceNotFoundException"):
        service.read(iterator)


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("ListStreams", {"Limit": 101}),
        ("ListStreams", {"Limit": 0}),
        ("DescribeStream", {"StreamArn": f"{TABLE}/stream/1", "Limit": "many"}),
        ("DescribeStream", {"StreamArn": "arn:aws:kinesis:eu-west-1:1:stream/orders"}),
        ("DescribeStream", {}),
        ("GetShardIterator", {"StreamArn": f"{TABLE}/stream/1"}),
    ],
)
def test_invalid_requests_are_refused(
    service: Service, operation: str, parameters: dict[str, Any]
) -> None:
    with refusal("ValidationException"):
        service.call(operation, **parameters)


def test_pages_are_limited_by_records_and_bytes(service: Service) -> None:
    service.insert(*(f"{number:04d}" for number in range(1001)))
    first = service.read(service.iterator("TRIM_HORIZON"))
    assert len(first["Records"]) == 1000
    assert keys(service.read(first["NextShardIterator"])) == ["1000"]
    with refusal("LimitExceededException"):
        service.read(first["NextShardIterator"], Limit=1001)
    with refusal("ValidationException"):
        service.describe(service.arn(), Limit=101)


def test_a_page_has_at_most_a_megabyte(service: Service) -> None:
    service.insert(*(f"{number}" + "x" * 1000 for number in range(1, 1000)))
    service.insert("y" * 900_000)
    first = service.read(service.iterator("TRIM_HORIZON"))
    assert len(first["Records"]) == 999
    service.now += 1
    assert len(keys(service.read(first["NextShardIterator"]))) == 1


def test_a_third_reader_of_a_shard_exceeds_the_limit(service: Service) -> None:
    iterator = service.iterator("LATEST")
    for _ in range(5):
        service.read(iterator)
    with refusal("LimitExceededException"):
        service.read(iterator)
    service.now += 1
    service.read(iterator)


def test_descriptions_and_listings_are_throttled(service: Service) -> None:
    for _ in range(10):
        service.shards()
    with refusal("ThrottlingException"):
        service.shards()
    for _ in range(5):
        service.call("ListStreams")
    with refusal("ThrottlingException"):
        service.call("ListStreams")
    service.now += 1
    service.shards()


def test_an_expiry_is_told_from_a_deletion(service: Service) -> None:
    item = {"id": {"S": "a"}}
    for is_expiry in (False, True):
        change = Change(item, item, None, is_expiry)
        service.streams.append(TABLE, change, service.now)
    deleted, expired = service.read(service.iterator("TRIM_HORIZON"))["Records"]
    assert "userIdentity" not in deleted
    assert expired["userIdentity"] == {
        "Type": "Service",
        "PrincipalId": "dynamodb.amazonaws.com",
    }


def test_a_record_has_all_that_aws_sends(service: Service) -> None:
    service.now += 0.7
    service.insert("a")
    (record,) = service.read(service.iterator("TRIM_HORIZON"))["Records"]
    number = record["dynamodb"].pop("SequenceNumber")
    assert number.isdecimal()
    assert len(record.pop("eventID")) == 32
    assert record == {
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": {
            "ApproximateCreationDateTime": int(START),
            "Keys": {"id": {"S": "a"}},
            "SizeBytes": 3,
            "StreamViewType": "KEYS_ONLY",
        },
    }
