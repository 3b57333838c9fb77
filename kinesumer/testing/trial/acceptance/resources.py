"""Create, tag, find, change and delete streams and tables.

Calls are repeated while AWS throttles them, or while a resource is being changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from botocore import xform_name

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of, foreign
from kinesumer.aws.kinesis_errors import IN_USE, NOT_FOUND
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


def _has_code(error: KinesumerError, code: str) -> bool:
    cause = error.__cause__
    return isinstance(cause, foreign()) and failure_of(cause).code == code


class Resources:
    """The streams, or the tables, of one account and region."""

    kind: str
    service: str
    unavailable: type[TransientError]

    def __init__(self, opened: OpenClient) -> None:
        self._opened = opened
        # An AWS SDK's client resolves the endpoint of its service.
        self.endpoint: str = opened.client.meta.endpoint_url

    @classmethod
    async def open(cls, clients: ClientFactory, role: Role | None = None) -> Self:
        """Open what the credentials, or a role, can manage."""
        return cls(await clients.open(cls.service, role=role))

    async def names(self, prefix: str) -> list[str]:
        """Return all names that begin with a prefix."""
        kind, found = self.kind.title(), list[str]()
        after: dict[str, Any] = {}
        while True:
            answer = await self._call(f"List{kind}s", **after)
            names = answer[f"{kind}Names"]
            found += [name for name in names if name.startswith(prefix)]
            if not (answer.get("HasMoreStreams") or "LastEvaluatedTableName" in answer):
                return found
            after = {f"ExclusiveStart{kind}Name": names[-1]}

    async def tags(self, name: str) -> dict[str, str]:
        """Return the tags of a resource, or none if it doesn't exist."""
        answer = await self._tags(name) or {"Tags": ()}
        return {tag["Key"]: tag["Value"] for tag in answer["Tags"]}

    async def _tags(self, name: str) -> Any:
        raise NotImplementedError

    async def delete(self, name: str) -> None:
        """Begin to delete a resource. It needn't exist."""
        await self._call(f"Delete{self.kind.title()}", name, ignored=NOT_FOUND)

    async def _call(
        self,
        operation: str,
        name: str | None = None,
        *,
        ignored: str | None = None,
        **values: Any,
    ) -> Any:
        """Return the response, or None for an error with the code ``ignored``."""
        resource = values.get("ResourceArn", "*")
        if name is not None:
            values[f"{self.kind.title()}Name"] = name
            resource = f"{self.kind} {name}"
        call = getattr(self._opened.client, xform_name(operation))
        action, keys = f"{self.service}:{operation}", self._opened.keys

        async def request() -> Any:
            try:
                with call_errors(action, resource, self.unavailable, keys):
                    return await call(**values)
            except KinesumerError as error:
                if ignored is not None and _has_code(error, ignored):
                    return None
                raise

        return await RETRIES.call(request)


class StreamResources(Resources):
    """The streams of one account and region."""

    kind = "stream"
    service = "kinesis"
    unavailable = SourceUnavailableError

    async def create(self, name: str, shards: int, tags: Mapping[str, str]) -> None:
        """Create a stream with tags. It isn't active yet when this returns.

        The name must be new. If it is in use, a call whose answer was lost created it.
        """
        await self._call(
            "CreateStream", name, ignored=IN_USE, ShardCount=shards, Tags=dict(tags)
        )

    async def tag(self, name: str, tags: Mapping[str, str]) -> None:
        """Add tags to an active stream."""
        await self._call("AddTagsToStream", name, Tags=dict(tags))

    async def _tags(self, name: str) -> Any:
        return await self._call("ListTagsForStream", name, ignored=NOT_FOUND)

    async def split(self, name: str, shard_id: str, at_hash: int) -> None:
        """Begin to split a shard at a hash key."""
        at = str(at_hash)
        await self._call(
            "SplitShard", name, ShardToSplit=shard_id, NewStartingHashKey=at
        )

    async def merge(self, name: str, shard_id: str, adjacent: str) -> None:
        """Begin to merge two adjacent shards."""
        await self._call(
            "MergeShards", name, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent
        )

    async def put(
        self, name: str, data: bytes, key: str, hash_key: int
    ) -> tuple[str, str]:
        """Put a record. Return its shard and its sequence number."""
        routed: dict[str, Any] = {"PartitionKey": key, "ExplicitHashKey": str(hash_key)}
        answer = await self._call("PutRecord", name, Data=data, **routed)
        return answer["ShardId"], answer["SequenceNumber"]

    async def delete(self, name: str) -> None:
        """Begin to delete a stream with its consumers. It needn't exist."""
        await self._call(
            "DeleteStream", name, ignored=NOT_FOUND, EnforceConsumerDeletion=True
        )


class TableResources(Resources):
    """The tables of one account and region."""

    kind = "table"
    service = "dynamodb"
    unavailable = StoreUnavailableError

    async def create(self, name: str, tags: Mapping[str, str]) -> None:
        """Create a state store's table with tags, as ``StreamResources.create()``."""
        pairs = [{"Key": key, "Value": value} for key, value in tags.items()]
        await self._call("CreateTable", name, ignored=IN_USE, Tags=pairs, **DEFINITION)

    async def _tags(self, name: str) -> Any:
        described = await self._call("DescribeTable", name, ignored=NOT_FOUND)
        if described is None:
            return None
        arn = described["Table"]["TableArn"]
        return await self._call(
            "ListTagsOfResource", ignored=NOT_FOUND, ResourceArn=arn
        )
