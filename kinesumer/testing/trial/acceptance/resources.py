"""Create, tag, find, change and delete streams and tables.

Calls are repeated while AWS throttles them, or while a resource is being changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore import xform_name

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of, foreign
from kinesumer.aws.kinesis_errors import NOT_FOUND
from kinesumer.aws.roles import Role
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    KinesumerError,
    SourceUnavailableError,
    StoreUnavailableError,
    TransientError,
)
from kinesumer.runtime.tasks import CALL_RETRIES
from kinesumer.wire.rows import DEFINITION

RETRIES = CALL_RETRIES._replace(errors=(TransientError,))
UNAVAILABLE: dict[str, type[TransientError]] = {
    "kinesis": SourceUnavailableError,
    "dynamodb": StoreUnavailableError,
}


class _Calls:
    """The calls of one service, with retries."""

    def __init__(self, service: str, opened: OpenClient) -> None:
        self._service, self._opened = service, opened
        # An AWS SDK's client resolves the endpoint of its service.
        self.endpoint: str = opened.client.meta.endpoint_url

    async def __call__(
        self, operation: str, resource: str, *, missing_ok: bool = False, **values: Any
    ) -> Any:
        """Return the response. Return None for a missing resource if that is fine."""
        call = getattr(self._opened.client, xform_name(operation))
        action = f"{self._service}:{operation}"
        unavailable, keys = UNAVAILABLE[self._service], self._opened.keys

        async def request() -> Any:
            with call_errors(action, resource, unavailable, keys):
                return await call(**values)

        try:
            return await RETRIES.call(request)
        except KinesumerError as error:
            if missing_ok and _is_missing(error):
                return None
            raise


def _is_missing(error: KinesumerError) -> bool:
    cause = error.__cause__
    return isinstance(cause, foreign()) and failure_of(cause).code == NOT_FOUND


class StreamResources:
    """The streams of one account and region."""

    kind = "stream"

    def __init__(self, opened: OpenClient) -> None:
        self._call = _Calls("kinesis", opened)
        self.endpoint: str = self._call.endpoint

    @classmethod
    async def open(
        cls, clients: ClientFactory, role: Role | None = None
    ) -> StreamResources:
        """Open the streams that the credentials, or a role, can manage."""
        return cls(await clients.open("kinesis", role=role))

    async def create(self, name: str, shards: int, tags: Mapping[str, str]) -> None:
        """Create a stream with tags. It isn't active yet when this returns."""
        await self._call(
            "CreateStream",
            f"stream {name}",
            StreamName=name,
            ShardCount=shards,
            Tags=dict(tags),
        )

    async def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """Add tags to an active stream."""
        await self._call(
            "AddTagsToStream", f"stream {name}", StreamName=name, Tags=dict(tags)
        )

    async def tags(self, name: str) -> dict[str, str]:
        """Return a stream's tags, or none if the stream doesn't exist."""
        answer = await self._call(
            "ListTagsForStream", f"stream {name}", missing_ok=True, StreamName=name
        )
        return {} if answer is None else _tags(answer)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all streams that begin with a prefix."""
        found: list[str] = []
        after: dict[str, Any] = {}
        while True:
            answer = await self._call("ListStreams", "*", **after)
            names = answer["StreamNames"]
            found += [name for name in names if name.startswith(prefix)]
            if not answer["HasMoreStreams"]:
                return found
            after = {"ExclusiveStartStreamName": names[-1]}

    async def split(self, name: str, shard_id: str, at_hash: int) -> None:
        """Begin to split a shard at a hash key."""
        await self._call(
            "SplitShard",
            f"stream {name}",
            StreamName=name,
            ShardToSplit=shard_id,
            NewStartingHashKey=str(at_hash),
        )

    async def merge(self, name: str, shard_id: str, adjacent: str) -> None:
        """Begin to merge two adjacent shards."""
        await self._call(
            "MergeShards",
            f"stream {name}",
            StreamName=name,
            ShardToMerge=shard_id,
            AdjacentShardToMerge=adjacent,
        )

    async def put(
        self, name: str, data: bytes, key: str, hash_key: int
    ) -> tuple[str, str]:
        """Put a record. Return its shard and its sequence number."""
        answer = await self._call(
            "PutRecord",
            f"stream {name}",
            StreamName=name,
            Data=data,
            PartitionKey=key,
            ExplicitHashKey=str(hash_key),
        )
        return answer["ShardId"], answer["SequenceNumber"]

    async def delete(self, name: str) -> None:
        """Begin to delete a stream with its consumers. It needn't exist."""
        await self._call(
            "DeleteStream",
            f"stream {name}",
            missing_ok=True,
            StreamName=name,
            EnforceConsumerDeletion=True,
        )


class TableResources:
    """The tables of one account and region."""

    kind = "table"

    def __init__(self, opened: OpenClient) -> None:
        self._call = _Calls("dynamodb", opened)
        self.endpoint: str = self._call.endpoint

    @classmethod
    async def open(cls, clients: ClientFactory) -> TableResources:
        """Open the tables that the credentials can manage."""
        return cls(await clients.open("dynamodb"))

    async def create(self, name: str, tags: Mapping[str, str]) -> None:
        """Create a state store's table with tags. It isn't active when this returns."""
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        await self._call(
            "CreateTable", f"table {name}", TableName=name, Tags=pairs, **DEFINITION
        )

    async def tags(self, name: str) -> dict[str, str]:
        """Return a table's tags, or none if the table doesn't exist."""
        described = await self._call(
            "DescribeTable", f"table {name}", missing_ok=True, TableName=name
        )
        if described is None:
            return {}
        answer = await self._call(
            "ListTagsOfResource",
            f"table {name}",
            missing_ok=True,
            ResourceArn=described["Table"]["TableArn"],
        )
        return {} if answer is None else _tags(answer)

    async def names(self, prefix: str) -> list[str]:
        """Return the names of all tables that begin with a prefix."""
        found: list[str] = []
        after: dict[str, Any] = {}
        while True:
            answer = await self._call("ListTables", "*", **after)
            found += [name for name in answer["TableNames"] if name.startswith(prefix)]
            if "LastEvaluatedTableName" not in answer:
                return found
            after = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}

    async def delete(self, name: str) -> None:
        """Begin to delete a table. It needn't exist."""
        await self._call(
            "DeleteTable", f"table {name}", missing_ok=True, TableName=name
        )


def _tags(answer: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in answer["Tags"]}
