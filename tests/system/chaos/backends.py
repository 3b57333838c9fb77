"""The servers for a chaos run: the embedded AWS, or emulators operated like it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from botocore.config import Config
from botocore.session import Session

from kinesumer.testing import EmbeddedAws, background
from kinesumer.wire.rows import DEFINITION
from tests.support import servers
from tests.system.chaos.mishaps import FAULTS, RESHARDS

WAIT_SECONDS = 30.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
NAMES = ("embedded", "kinesis-local", "ministack")


class Backend(NamedTuple):
    """A server that emulates AWS, and its differences from AWS."""

    name: str
    aws: Any  # an EmbeddedAws, or an Endpoint
    per_second: float  # records produced for each stream; some servers are slow
    # The mishaps that can't happen on this server, and the reason for each.
    without: Mapping[str, str] = MappingProxyType({})
    deviations: tuple[str, ...] = ()  # properties that the verdict can't judge
    # The stream consumer that reads every second stream by enhanced fan-out.
    fan_out: str | None = None


NO_FAULTS = dict.fromkeys(FAULTS, "its faults can't be ordered")
NO_LIMITS = "it has no limits, so it never throttles"


@contextmanager
def backend(name: str, endpoint: str | None, seed: int) -> Iterator[Backend]:
    with ExitStack() as stack:
        if endpoint is not None:
            aws = stack.enter_context(Endpoint(endpoint, endpoint))
            limits = "limits are those of the endpoint"
            yield Backend(endpoint, aws, 20, NO_FAULTS, (limits,))
        elif name == "embedded":
            embedded = stack.enter_context(background(EmbeddedAws(seed=seed)))
            yield Backend(name, embedded, 20, fan_out="chaos")
        elif name == "kinesis-local":
            kinesis = stack.enter_context(servers.kinesis_local())
            dynamodb = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(kinesis, dynamodb))
            deviations = (NO_LIMITS, "DynamoDB is MiniStack's")
            yield Backend(name, aws, 10, NO_FAULTS, deviations)
        else:
            url = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(url, url))
            gone = "a parent vanishes with its unread records in place of ending"
            without = NO_FAULTS | dict.fromkeys(RESHARDS, gone)
            yield Backend(name, aws, 20, without, (NO_LIMITS,))


# --- other emulators ------------------------------------------------------------------


class Endpoint:
    """Servers of Kinesis and DynamoDB, with the methods that fleets call.

    Faults can't be ordered from them.
    """

    def __init__(self, kinesis: str, dynamodb: str) -> None:
        known = {k: os.environ[k] for k in CREDENTIALS if k in os.environ}
        self.url = kinesis
        self._variables = {
            **CREDENTIALS,
            **known,
            "AWS_ENDPOINT_URL": kinesis,
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb,
        }
        self._kinesis = self._client("kinesis", kinesis)
        self._dynamodb = self._client("dynamodb", dynamodb)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kinesis.close()
        self._dynamodb.close()

    def environment(self) -> dict[str, str]:
        return self._variables

    # --- streams ---------------------------------------------------------------------

    def create_stream(self, name: str, shards: int) -> str:
        self._kinesis.create_stream(StreamName=name, ShardCount=shards)
        arn: str = self._until_active(StreamName=name)["StreamARN"]
        return arn

    def put(self, stream: str, data: bytes, partition_key: str) -> tuple[str, str]:
        answer = self._kinesis.put_record(
            StreamARN=stream, Data=data, PartitionKey=partition_key
        )
        return answer["ShardId"], answer["SequenceNumber"]

    def split(self, stream: str, shard_id: str) -> None:
        [keys] = [s for s in self._open(stream) if s["ShardId"] == shard_id]
        first, last = hash_keys(keys)
        self._kinesis.split_shard(
            StreamARN=stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((first + last + 1) // 2),
        )
        self._until_active(StreamARN=stream)

    def merge(self, stream: str, shard_id: str, adjacent_shard_id: str) -> None:
        self._kinesis.merge_shards(
            StreamARN=stream,
            ShardToMerge=shard_id,
            AdjacentShardToMerge=adjacent_shard_id,
        )
        self._until_active(StreamARN=stream)

    def open_shards(self, stream: str) -> list[str]:
        return [s["ShardId"] for s in sorted(self._open(stream), key=hash_keys)]

    def shards(self, stream: str) -> list[dict[str, Any]]:
        pages = self._kinesis.get_paginator("list_shards").paginate(StreamARN=stream)
        return [shard for page in pages for shard in page["Shards"]]

    def _open(self, stream: str) -> list[dict[str, Any]]:
        ends = "EndingSequenceNumber"
        return [s for s in self.shards(stream) if ends not in s["SequenceNumberRange"]]

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
        self._dynamodb.create_table(TableName=name, **DEFINITION)
        self._dynamodb.get_waiter("table_exists").wait(TableName=name)

    def dynamodb(self, _: str, body: bytes) -> Any:
        """Query the table, which is all that a fleet asks for."""
        return self._dynamodb.query(**json.loads(body))

    def clear_faults(self) -> None:
        """Do nothing, since there are no faults."""

    def _client(self, service: str, url: str) -> Any:
        return Session().create_client(
            service,
            region_name=self._variables["AWS_REGION"],
            endpoint_url=url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"mode": "standard"}, max_pool_connections=4),
        )


def hash_keys(shard: dict[str, Any]) -> tuple[int, int]:
    found = shard["HashKeyRange"]
    return int(found["StartingHashKey"]), int(found["EndingHashKey"])
