"""Create, tag, find, change and delete streams and tables.

Calls are repeated while AWS throttles them, or while a resource is being changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from botocore import xform_name

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.errors import call_errors, failure_of, foreign
from kinesumer.aws.fan_out import open_reading_source
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.kinesis_errors import IN_USE, NOT_FOUND
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.errors import (
    KinesumerError,
    SourceUnavailableError,
    StoreUnavailableError,
    StreamMissingError,
    TransientError,
)
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.runtime.partitions import is_aws_host
from kinesumer.runtime.tasks import CALL_RETRIES
from kinesumer.testing.trial.acceptance.check import CheckSkippedError
from kinesumer.wire.rows import DEFINITION

RETRIES = CALL_RETRIES._replace(errors=(TransientError,))
ACTIVE_SECONDS = 180.0


def _has_code(error: KinesumerError, code: str) -> bool:
    cause = error.__cause__
    return isinstance(cause, foreign()) and failure_of(cause).code == code


class Resources:
    """The streams, or the tables, of one account and region."""

    kind: str
    service: str
    unavailable: type[TransientError]
    _deletion: Mapping[str, bool] = {}  # options of the call that deletes

    def __init__(self, opened: OpenClient) -> None:
        self._opened = opened
        # The names of those that were created here and not deleted.
        self.created: set[str] = set()

    @property
    def is_aws(self) -> bool:
        """True if they are those of AWS, and not of an emulator."""
        # An AWS SDK's client resolves the endpoint of its service.
        endpoint = self._opened.client.meta.endpoint_url
        return is_aws_host(urlsplit(endpoint).hostname or "")

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

    async def begin_deleting(self, name: str) -> None:
        """Begin to delete a resource. It needn't exist."""
        delete = f"Delete{self.kind.title()}"
        await self._call(delete, name, ignored=NOT_FOUND, **self._deletion)
        self.created.discard(name)

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


class TableResources(Resources):
    """The tables of one account and region."""

    kind = "table"
    service = "dynamodb"
    unavailable = StoreUnavailableError

    @classmethod
    async def open(cls, clients: ClientFactory) -> Self:
        """Open the tables that the credentials can manage."""
        return cls(await clients.open(cls.service))

    async def create(self, name: str, tags: Mapping[str, str]) -> None:
        """Create a state store's table with tags. It isn't active yet afterwards.

        The name must be new. If it is in use, a call whose answer was lost created it.
        """
        self.created.add(name)
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


class Streams(Resources):
    """The streams of AWS, or of another endpoint, and its clock.

    Tests override the methods for backends whose clock can be advanced.
    """

    kind = "stream"
    service = "kinesis"
    unavailable = SourceUnavailableError
    _deletion: Mapping[str, bool] = {"EnforceConsumerDeletion": True}

    def __init__(
        self,
        clients: ClientFactory,
        opened: OpenClient,
        tags: Mapping[str, str],
        role_arn: str | None,
        external_id: str | None,
    ) -> None:
        super().__init__(opened)
        self.role_arn = role_arn
        self._clients, self._external_id = clients, external_id
        self._tags_of_new = dict(tags)

    @classmethod
    async def open(
        cls,
        clients: ClientFactory,
        tags: Mapping[str, str],
        role_arn: str | None = None,
        external_id: str | None = None,
    ) -> Self:
        """Open the streams that the credentials, or a role, can manage.

        All streams that are created get the tags.
        """
        role = None if role_arn is None else clients.role(role_arn, external_id)
        opened = await clients.open(cls.service, role=role)
        return cls(clients, opened, tags, role_arn, external_id)

    async def create(self, stream: str, shards: int = 1) -> None:
        """Create a stream, and wait until it is active.

        A repeated call may find the stream that a lost answer left.
        """
        self.created.add(stream)
        tags = self._tags_of_new
        await self._call(
            "CreateStream", stream, ignored=IN_USE, ShardCount=shards, Tags=tags
        )
        await self._until_active(stream)
        if not self.is_aws:  # an emulator may ignore the tags of CreateStream
            await self._call("AddTagsToStream", stream, Tags=tags)

    async def _tags(self, name: str) -> Any:
        return await self._call("ListTagsForStream", name, ignored=NOT_FOUND)

    async def delete(self, stream: str) -> None:
        """Delete a stream, and wait until it is gone."""
        await self.begin_deleting(stream)
        source = await self.source(stream)

        async def is_gone() -> bool:
            try:
                await source.describe()
            except StreamMissingError:
                return True
            return False

        await until(is_gone, f"stream {stream} isn't deleted")

    def stream(self, name: str, fan_out: str | None = None) -> Stream:
        """Return a stream in the form in which a user passes it to ``consume()``."""
        role, external_id = self.role_arn, self._external_id
        return Stream(name, role_arn=role, external_id=external_id, fan_out=fan_out)

    async def source(self, stream: str) -> StreamSource:
        """Return the source of a stream."""
        return await open_source(self._clients, self.stream(stream))

    async def consumers(self, stream: str) -> StreamConsumers:
        """Return the stream's registered consumers."""
        return StreamConsumers(await open_source(self._clients, self.stream(stream)))

    async def fan_out(self, stream: str, consumer: str) -> StreamSource:
        """Return a source that reads a stream by subscriptions of a consumer."""
        return await open_reading_source(self._clients, self.stream(stream, consumer))

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        """Put a record. Return its shard and its sequence number."""
        routed = {"PartitionKey": key, "ExplicitHashKey": str(hash_key)}
        answer = await self._call("PutRecord", stream, Data=data, **routed)
        return answer["ShardId"], answer["SequenceNumber"]

    async def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle."""
        listed = await (await self.source(stream)).list_shards()
        [shard] = [shard for shard in listed if shard.shard_id == shard_id]
        middle = str((shard.first_hash + shard.last_hash + 1) // 2)
        await self._call(
            "SplitShard", stream, ShardToSplit=shard_id, NewStartingHashKey=middle
        )
        await self._until_active(stream)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        """Merge two adjacent shards."""
        which = {"ShardToMerge": shard_id, "AdjacentShardToMerge": adjacent}
        await self._call("MergeShards", stream, **which)
        await self._until_active(stream)

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def pass_time(self, seconds: float) -> None:
        """Advance the backend's clock. A check on AWS is skipped here."""
        raise CheckSkippedError("the service's clock can't be advanced")

    def now(self) -> float:
        """Return this machine's time, in seconds since 1970."""
        return time.time()

    async def _until_active(self, stream: str) -> None:
        source = await self.source(stream)

        async def is_active() -> bool:
            return (await source.describe()).status == "ACTIVE"

        await until(is_active, f"stream {stream} isn't active")


async def until(holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Ask repeatedly. Raise SourceUnavailableError in the end."""
    deadline = time.monotonic() + ACTIVE_SECONDS
    while True:
        try:
            if await holds():
                return
        except SourceUnavailableError:
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            raise SourceUnavailableError(f"{otherwise} after {ACTIVE_SECONDS:g} s")
        await asyncio.sleep(2 * CALL_SECONDS)
