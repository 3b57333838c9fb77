"""Any endpoint as a fleet needs it: what the embedded AWS does itself, by requests."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any, Self

from botocore.config import Config
from botocore.session import Session

from kinesumer.local.faults import Fault
from kinesumer.wire.table_definition import DEFINITION
from tests.system.chaos.front import Front

if TYPE_CHECKING:
    from kinesumer.local.faults import Kind

WAIT_SECONDS = 30.0
OPERATIONS = {"Query": "query", "CreateTable": "create_table"}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Endpoint:
    """Servers of Kinesis and DynamoDB, reached through a front that has faults."""

    def __init__(self, kinesis: str, dynamodb: str, seed: int) -> None:
        targets = {"kinesis": kinesis, "dynamodb": dynamodb, "sts": dynamodb}
        self._front = Front(targets, seed)
        self._kinesis = self._client("kinesis", kinesis)
        self._dynamodb = self._client("dynamodb", dynamodb)

    def __enter__(self) -> Self:
        self._front.start()
        self.port = self._front.port
        return self

    def __exit__(self, *_: object) -> None:
        self._front.stop()
        self._kinesis.close()
        self._dynamodb.close()

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables with which AWS's SDKs come here."""
        known = {k: os.environ[k] for k in CREDENTIALS if k in os.environ}
        return {**CREDENTIALS, **known, "AWS_ENDPOINT_URL": self.url}

    # --- streams ---------------------------------------------------------------------

    def create_stream(self, name: str, shards: int) -> str:
        """Create a stream and return its ARN."""
        self._kinesis.create_stream(StreamName=name, ShardCount=shards)
        arn: str = self._until_active(StreamName=name)["StreamARN"]
        return arn

    def put(self, stream: str, data: bytes, partition_key: str) -> tuple[str, str]:
        """Store one record; return its shard and sequence number."""
        answer = self._kinesis.put_record(
            StreamARN=stream, Data=data, PartitionKey=partition_key
        )
        return answer["ShardId"], answer["SequenceNumber"]

    def split(self, stream: str, shard_id: str) -> None:
        """Split an open shard in the middle."""
        [keys] = [s for s in self._open(stream) if s["ShardId"] == shard_id]
        first, last = hash_keys(keys)
        self._kinesis.split_shard(
            StreamARN=stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((first + last + 1) // 2),
        )
        self._until_active(StreamARN=stream)

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        """Merge two open neighbours."""
        self._kinesis.merge_shards(
            StreamARN=stream,
            ShardToMerge=shard_id,
            AdjacentShardToMerge=adjacent_shard_id,
        )
        self._until_active(StreamARN=stream)

    def open_shards(self, stream: str) -> list[str]:
        """Return the ids of the open shards in order of their hash keys."""
        return [s["ShardId"] for s in sorted(self._open(stream), key=hash_keys)]

    def _open(self, stream: str) -> list[dict[str, Any]]:
        shards: list[dict[str, Any]] = []
        pages = self._kinesis.get_paginator("list_shards")
        for page in pages.paginate(StreamARN=stream):
            shards += page["Shards"]
        return [
            s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]
        ]

    def _until_active(self, **stream: str) -> dict[str, Any]:
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            answer = self._kinesis.describe_stream_summary(**stream)
            summary: dict[str, Any] = answer["StreamDescriptionSummary"]
            if summary["StreamStatus"] == "ACTIVE":
                return summary
            time.sleep(0.05)
        raise RuntimeError(f"{stream} isn't active after {WAIT_SECONDS:g} s")

    # --- the table -------------------------------------------------------------------

    def create_table(self, name: str) -> None:
        """Create a state store."""
        self._dynamodb.create_table(TableName=name, **DEFINITION)
        self._dynamodb.get_waiter("table_exists").wait(TableName=name)

    def dynamodb(self, operation: str, body: bytes) -> Any:
        """Carry out a DynamoDB request."""
        call = getattr(self._dynamodb, OPERATIONS[operation])
        return call(**json.loads(body))

    # --- faults ----------------------------------------------------------------------

    def fault(self, kind: Kind, **which: Any) -> int:
        """Put a fault in force and return its number."""
        return self._front.add(Fault(kind=kind, **which))

    def clear_faults(self, number: int | None = None) -> None:
        """End one fault, or all of them."""
        self._front.remove(number)

    def _client(self, service: str, url: str) -> Any:
        return Session().create_client(
            service,
            region_name=os.environ.get("AWS_REGION", CREDENTIALS["AWS_REGION"]),
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard"}, max_pool_connections=4),
        )


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    """Return a shard's first and last hash key."""
    found = shard["HashKeyRange"]
    return int(found["StartingHashKey"]), int(found["EndingHashKey"])
