"""Call the lease table of a KCL fleet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.dynamodb_calls import (
    Answer,
    ConditionFailedError,
    TableCalls,
    request_of,
    row_of,
)
from kinesumer.aws.errors import translated_errors
from kinesumer.aws.session import ClientFactory, Loan
from kinesumer.errors import ConfigurationError, StoreUnavailableError
from kinesumer.model.rows import Row
from kinesumer.ports import FleetTables, Write, WriteResult
from kinesumer.wire.kcl_leases import KEY
from kinesumer.wire.kcl_workers import ENTRY_KEY, workers_table


def missing_lease_table(table: str, region: str) -> ConfigurationError:
    """Return the error for a lease table that doesn't exist."""
    return ConfigurationError(
        f"table {table} doesn't exist in {region}: check the KCL fleet's application "
        "name, which is the name of its lease table, and --region"
    )


async def open_table(clients: ClientFactory, table: str) -> DynamoLeaseTable:
    """Return a lease table. It uses the event loop's shared client."""
    return DynamoLeaseTable(await clients.open("dynamodb"), table)


@asynccontextmanager
async def open_borrowed_tables(loan: Loan, table: str) -> AsyncIterator[FleetTables]:
    """Open a fleet's tables on the running event loop, with a client of their own."""
    async with loan() as opened:
        workers = DynamoLeaseTable(opened, workers_table(table), ENTRY_KEY)
        yield FleetTables(DynamoLeaseTable(opened, table), workers)


class DynamoLeaseTable:
    """A lease table in DynamoDB, without retries. See ``ports.LeaseTable``."""

    def __init__(self, opened: OpenClient, table: str, key: str = KEY) -> None:
        """``key`` is the attribute that is the table's key."""
        self.name: str = table
        self._key = key
        self._call = TableCalls(opened, table, missing_lease_table)

    async def scan(self, *, consistent: bool = False) -> list[Row]:
        """Return all rows. Raise ConfigurationError if the table doesn't exist."""
        items = await self._call.read_items("Scan", {"ConsistentRead": consistent})
        with translated_errors("Scan", StoreUnavailableError):
            return [row_of(item) for item in items]

    async def get(self, lease_key: str) -> Row | None:
        """Return one row, read consistently, or None."""
        return await self._call(
            "GetItem",
            {"Key": {self._key: {"S": lease_key}}, "ConsistentRead": True},
            lambda answer: row_of(answer["Item"]) if "Item" in answer else None,
        )

    async def write(self, write: Write) -> WriteResult:
        """Apply one conditional write, without retries."""
        arguments = request_of(write) | {"Key": {self._key: {"S": write.key.pk}}}

        def row(answer: Answer) -> Row | None:
            return None if write.delete else row_of(answer["Attributes"])

        operation = "DeleteItem" if write.delete else "UpdateItem"
        try:
            return WriteResult(True, await self._call(operation, arguments, row))
        except ConditionFailedError as refused:
            return WriteResult(False, refused.row)
