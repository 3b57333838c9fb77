"""The lease table of a KCL (Kinesis Client Library) fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.aws.dynamodb_calls import RefusedError, TableCalls
from kinesumer.aws.errors import translated_errors
from kinesumer.aws.expressions import Attribute
from kinesumer.errors import ConfigurationError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kinesumer.aws.session import ClientFactory

KEY = "leaseKey"
COUNTER = "leaseCounter"
Item = dict[str, Attribute]
"""A row as DynamoDB's JSON, since ``Value`` doesn't cover all its attributes."""


class LeaseWrite(NamedTuple):
    """One change of one lease."""

    key: str
    set: Mapping[str, Attribute]
    remove: tuple[str, ...] = ()
    counter: int | None = None
    """The expected counter. None: the lease must not exist."""


async def open_leases(clients: ClientFactory, table: str) -> KclLeaseTable:
    """Return the lease table, with the event loop's shared client."""
    opened = await clients.open("dynamodb")
    return KclLeaseTable(opened.client, table, expired=opened.expired)


class KclLeaseTable:
    """One table with a lease for each shard. Its calls aren't retried."""

    def __init__(
        self, client: Any, table: str, *, expired: Callable[[], bool] = bool
    ) -> None:
        self._client, self.name = client, table
        self._call = TableCalls(client, table, expired=expired, missing=_missing)

    async def scan(self) -> list[Item]:
        """Return all rows. Raise ConfigurationError if the table doesn't exist."""
        items: list[Item] = []
        arguments: dict[str, object] = {"ConsistentRead": True}
        while True:
            answer = await self._call("Scan", self._client.scan, arguments)
            with translated_errors("Scan", StoreUnavailableError):
                items += answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return items
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    async def write(self, write: LeaseWrite) -> bool:
        """Change or create a lease. Return False if the lease has changed since."""
        try:
            if write.counter is None:
                await self._create(write)
            else:
                await self._change(write)
        except RefusedError:
            return False
        return True

    async def _create(self, write: LeaseWrite) -> None:
        arguments = {
            "Item": {KEY: {"S": write.key}, **write.set},
            "ConditionExpression": f"attribute_not_exists({KEY})",
        }
        await self._call("PutItem", self._client.put_item, arguments)

    async def _change(self, write: LeaseWrite) -> None:
        names = list(write.set)
        sets = ", ".join(f"{name} = :{at}" for at, name in enumerate(names))
        removes = f" REMOVE {', '.join(write.remove)}" if write.remove else ""
        values = {f":{at}": write.set[name] for at, name in enumerate(names)}
        arguments = {
            "Key": {KEY: {"S": write.key}},
            "UpdateExpression": f"SET {sets}{removes}",
            "ConditionExpression": f"{COUNTER} = :seen",
            "ExpressionAttributeValues": {
                **values,
                ":seen": {"N": str(write.counter)},
            },
        }
        await self._call("UpdateItem", self._client.update_item, arguments)


def _missing(table: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {table} doesn't exist: check the KCL fleet's application name, which "
        "is the name of its lease table, and --region"
    )
