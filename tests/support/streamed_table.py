"""Create the table "orders" with a stream, and read the stream by AWS's client."""

from __future__ import annotations

from typing import Any

from kinesumer.testing import EmbeddedAws

DAY_SECONDS = 86_400
SPECIFICATION = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


async def create_table(
    dynamodb: Any, view: str | None = "NEW_AND_OLD_IMAGES"
) -> dict[str, Any]:
    """Create the table, with a stream unless ``view`` is None. Describe the table."""
    stream: dict[str, Any] = {"StreamEnabled": view is not None}
    if view is not None:
        stream["StreamViewType"] = view
    answer = await dynamodb.create_table(
        TableName="orders",
        AttributeDefinitions=[
            {"AttributeName": "id", "AttributeType": "S"},
            {"AttributeName": "line", "AttributeType": "N"},
        ],
        KeySchema=[
            {"AttributeName": "id", "KeyType": "HASH"},
            {"AttributeName": "line", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=stream,
    )
    description: dict[str, Any] = answer["TableDescription"]
    return description


def item(key: str = "a", line: int = 1, **values: Any) -> dict[str, Any]:
    """Return an item in DynamoDB's JSON."""
    return {"id": {"S": key}, "line": {"N": str(line)}, **values}


async def shards_of(streams: Any, arn: str) -> list[dict[str, Any]]:
    """Return a stream's shards."""
    answer = await streams.describe_stream(StreamArn=arn)
    found: list[dict[str, Any]] = answer["StreamDescription"]["Shards"]
    return found


async def iterator_of(
    streams: Any, arn: str, shard: str, kind: str = "TRIM_HORIZON", **place: Any
) -> str:
    """Return an iterator of a shard."""
    answer = await streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard, ShardIteratorType=kind, **place
    )
    text: str = answer["ShardIterator"]
    return text


async def read_all(streams: Any, arn: str) -> list[dict[str, Any]]:
    """Return all records of a stream, shard by shard."""
    records = []
    for shard in await shards_of(streams, arn):
        first = await iterator_of(streams, arn, shard["ShardId"])
        records += (await streams.get_records(ShardIterator=first))["Records"]
    return records


async def changes(streams: Any, aws: EmbeddedAws) -> list[tuple[str, str]]:
    """Return the kind of change and the partition key of all records."""
    records = await read_all(streams, aws.table_streams.arn("orders"))
    return [
        (record["eventName"], record["dynamodb"]["Keys"]["id"]["S"])
        for record in records
    ]
