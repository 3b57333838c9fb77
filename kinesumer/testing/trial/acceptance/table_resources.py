"""Create tables with streams, and change their items."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.table_streams import TableStreamSource, open_table_source
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.model.streams import Stream
from kinesumer.testing.trial.acceptance.check import CheckSkippedError
from kinesumer.testing.trial.acceptance.resources import TableResources, until

Item = Mapping[str, Mapping[str, Any]]  # in DynamoDB's JSON
IMAGES = "NEW_AND_OLD_IMAGES"
_UNCONTROLLED = "the service's shards can't be rolled over or split on demand"


class StreamedTables(TableResources):
    """Tables with streams, whose partition key is the text ``id``.

    Tests override the methods for backends whose clock and shards can be controlled.
    """

    def __init__(
        self, clients: ClientFactory, opened: OpenClient, tags: Mapping[str, str]
    ) -> None:
        super().__init__(opened)
        self._clients = clients
        self._tags_of_new = [{"Key": key, "Value": tags[key]} for key in tags]

    @classmethod
    async def open_tagged(cls, clients: ClientFactory, tags: Mapping[str, str]) -> Self:
        """Open the tables. All tables that are created get the tags."""
        return cls(clients, await clients.open(cls.service), tags)

    async def create_streamed(self, name: str, view: str | None = IMAGES) -> None:
        """Create a table, with a stream unless ``view`` is None, and wait for it."""
        self.created.add(name)
        stream: dict[str, Any] = {}
        if view is not None:
            stream["StreamSpecification"] = _specification(view)
        await self._call(
            "CreateTable",
            name,
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            Tags=self._tags_of_new,
            **stream,
        )
        await self._until_active(name)

    async def set_stream(self, name: str, view: str | None) -> None:
        """Enable a table's stream, or disable it if ``view`` is None, and wait."""
        await self._call("UpdateTable", name, StreamSpecification=_specification(view))
        await self._until_active(name)

    async def source(self, name: str) -> TableStreamSource:
        """Return the source of a table's stream, or of the stream with an ARN."""
        named = Stream(name) if name.startswith("arn:") else Stream(table=name)
        return await open_table_source(self._clients, named)

    # --- items -----------------------------------------------------------------------

    async def put(self, name: str, item: Item) -> None:
        """Put an item."""
        await self._call("PutItem", name, Item=item)

    async def set_number(self, name: str, key: str, number: int) -> None:
        """Set the attribute ``n`` of an item."""
        await self._call(
            "UpdateItem",
            name,
            Key={"id": {"S": key}},
            UpdateExpression="SET n = :n",
            ExpressionAttributeValues={":n": {"N": str(number)}},
        )

    async def remove(self, name: str, key: str) -> None:
        """Delete an item."""
        await self._call("DeleteItem", name, Key={"id": {"S": key}})

    async def write_batch(self, writes: Mapping[str, Sequence[Any]]) -> None:
        """Write a batch of items. There must be few."""
        await self._call("BatchWriteItem", RequestItems=writes)

    async def transact(self, writes: Sequence[Any]) -> None:
        """Write items in a transaction."""
        await self._call("TransactWriteItems", TransactItems=writes)

    async def expire_by(self, name: str, attribute: str) -> None:
        """Let the time in an attribute expire the items of a table."""
        specification = {"Enabled": True, "AttributeName": attribute}
        await self._call(
            "UpdateTimeToLive", name, TimeToLiveSpecification=specification
        )

    # --- time and shards -------------------------------------------------------------

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def pass_time(self, seconds: float) -> None:
        """Advance the backend's clock. A check on AWS is skipped here."""
        raise CheckSkippedError("the service's clock can't be advanced")

    async def roll_over(self, name: str) -> None:
        """Close all shards of a table. A check on AWS is skipped here."""
        raise CheckSkippedError(_UNCONTROLLED)

    async def split(self, name: str, shard_id: str) -> None:
        """Split a shard of a table. A check on AWS is skipped here."""
        raise CheckSkippedError(_UNCONTROLLED)

    async def delete_expired(self, name: str) -> None:
        """Delete the expired items of a table. A check on AWS is skipped here."""
        raise CheckSkippedError("the service deletes expired items within days")

    def now(self) -> float:
        """Return this machine's time, in seconds since 1970."""
        return time.time()

    async def _until_active(self, name: str) -> None:
        async def is_active() -> bool:
            answer = await self._call("DescribeTable", name)
            return bool(answer["Table"]["TableStatus"] == "ACTIVE")

        await until(is_active, f"table {name} isn't active")


def _specification(view: str | None) -> dict[str, Any]:
    if view is None:
        return {"StreamEnabled": False}
    return {"StreamEnabled": True, "StreamViewType": view}
