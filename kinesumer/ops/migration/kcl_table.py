"""Read and change the lease table of a KCL (Kinesis Client Library) fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb_calls import RefusedError, TableCalls
from kinesumer.aws.expressions import Attribute
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ConfigurationError

KEY = "leaseKey"
COUNTER = "leaseCounter"
# A row in DynamoDB's JSON. ``Value`` doesn't cover all types of a lease's attributes.
Item = dict[str, Attribute]


class LeaseWrite(NamedTuple):
    """One change of one lease."""

    key: str
    set: Mapping[str, Attribute]
    remove: tuple[str, ...] = ()
    counter: int | None = None  # the expected counter; None for a new lease


async def open_leases(clients: ClientFactory, table: str) -> KclLeaseTable:
    """Return the lease table. It uses the event loop's shared client."""
    return KclLeaseTable(await clients.open("dynamodb"), table)


class KclLeaseTable:
    """A lease table with one lease for each shard. Calls aren't retried."""

    def __init__(self, opened: OpenClient, table: str) -> None:
        self.name = table
        self._call = TableCalls(opened, table, _missing)

    async def scan(self) -> list[Item]:
        """Return all rows. Raise ConfigurationError if the table doesn't exist."""
        return await self._call.read_items("Scan", {"ConsistentRead": True})

    async def write(self, write: LeaseWrite) -> bool:
        """Change or create a lease. Return False if another process did so first."""
        try:
            if write.counter is None:
                created = {
                    "Item": {KEY: {"S": write.key}, **write.set},
                    "ConditionExpression": f"attribute_not_exists({KEY})",
                }
                await self._call("PutItem", created, bool)
            else:
                await self._call("UpdateItem", _change(write), bool)
        except RefusedError:
            return False
        return True


def _change(write: LeaseWrite) -> dict[str, object]:
    sets = ", ".join(f"{name} = :{at}" for at, name in enumerate(write.set))
    removes = f" REMOVE {', '.join(write.remove)}" if write.remove else ""
    values = {f":{at}": value for at, value in enumerate(write.set.values())}
    return {
        "Key": {KEY: {"S": write.key}},
        "UpdateExpression": f"SET {sets}{removes}",
        # A KCL worker increases the counter when it renews or takes over a lease.
        "ConditionExpression": f"{COUNTER} = :seen",
        "ExpressionAttributeValues": {**values, ":seen": {"N": str(write.counter)}},
    }


def _missing(table: str, region: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {table} doesn't exist in {region}: check the KCL fleet's application "
        "name, which is the name of its lease table, and --region"
    )
