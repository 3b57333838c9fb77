"""Serve DynamoDB with moto. One thread runs all requests, so each is atomic."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from kinesumer.testing.embedded_aws.table_changes import (
    StreamSpecification,
    TableChanges,
    described_tables,
    take_specification,
)
from kinesumer.testing.kinesis.requests import AwsError, invalid_request
from kinesumer.testing.kinesis.service import Caller
from kinesumer.testing.kinesis.subscription import Subscription
from kinesumer.testing.table_streams.changes import Item, item_bytes

if TYPE_CHECKING:
    from kinesumer.testing.embedded_aws.moto_tables import Handler


class Units(NamedTuple):
    """Read and write capacity units."""

    read: float = 0.0
    write: float = 0.0


def read_units(items: list[Item], *, consistent: bool) -> float:
    """Return a read's units: 1 for each 4 KB, or 0.5 if it is eventually consistent."""
    blocks = max(1, math.ceil(sum(map(item_bytes, items)) / 4096))
    return blocks * (1.0 if consistent else 0.5)


def write_units(old: Item | None, new: Item | None, index_keys: list[str]) -> float:
    """Return a write's units: 1 for each KB, and those of the writes to the indexes.

    An index has only keys, and is written if the item's index key changes. Adding or
    removing the key is one write. Replacing the key takes two writes.
    """
    size = max(item_bytes(old or {}), item_bytes(new or {}), 1)
    units = math.ceil(size / 1024)
    for key in index_keys:
        before, after = (old or {}).get(key), (new or {}).get(key)
        if before != after:
            units += (before is not None) + (after is not None)
    return float(units)


_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_TABLE_RULE = (
    "Invalid table/index name. Table/index names must be between 3 and 255 characters "
    "long, and may contain only the characters a-z, A-Z, 0-9, '_', '-', and '.'"
)
PREFIX = "com.amazonaws.dynamodb.v20120810#"
_WRITES = ("PutItem", "UpdateItem", "DeleteItem")
_READS = ("GetItem", "Query", "Scan")


class Answer(NamedTuple):
    """A response, and the capacity units that it consumed."""

    status: int
    body: bytes
    units: Units = Units()
    error: str | None = None
    subscription: Subscription | None = None  # what sends the body piece by piece


class DynamoDB:
    """All tables of all accounts and regions.

    One thread runs all requests. The event loop serves Kinesis meanwhile.
    """

    def __init__(self, changes: TableChanges) -> None:
        # Not on the thread: moto imports boto3, whose modules import each other. If two
        # threads import such modules at once, one of them gets a module without names.
        from kinesumer.testing.embedded_aws.moto_tables import tables

        self._tables = tables()
        self._changes = changes
        self._thread = ThreadPoolExecutor(1, "kinesumer-dynamodb")

    def submit(
        self, account: str, region: str, operation: str, body: bytes
    ) -> Future[Answer]:
        """Execute a request on the thread, after the requests submitted before."""
        return self._thread.submit(self._call, account, region, operation, body)

    def submit_expiry(self, origin: Caller, table: str, now: float) -> Future[int]:
        """Delete the expired items of a table on the thread. Return their number."""
        return self._thread.submit(self._expire, origin, table, now)

    def close(self) -> None:
        """Stop the thread when all submitted requests are done."""
        self._thread.shutdown()

    def _call(self, account: str, region: str, operation: str, body: bytes) -> Answer:
        request = parse(body)
        # moto finds tables only by name, not by ARN.
        if str(request.get("TableName")).startswith("arn:"):
            request["TableName"] = request["TableName"].rpartition("/")[2]
        if "TableName" in request and not _TABLE.fullmatch(str(request["TableName"])):
            return error_answer(invalid_request(_TABLE_RULE))
        try:
            specification = take_specification(operation, request)
        except AwsError as error:
            return error_answer(error)
        handler = self._tables(account, region, request)
        measured = _Measured(handler.dynamodb_backend, operation, request)
        try:
            result = self._perform(handler, operation, specification)
        except AwsError as error:
            return error_answer(error)
        except Exception as error:
            return _failure(error, measured.units({}))
        finally:
            # A request that fails may have changed items before.
            self._changes.append(Caller(account, region), handler.changes())
        units = measured.units(result)
        result.pop("ConsumedCapacity", None)
        if request.get("ReturnConsumedCapacity", "NONE") != "NONE":
            result["ConsumedCapacity"] = {
                "TableName": request["TableName"],
                "CapacityUnits": units.read + units.write,
            }
        return Answer(200, handler.encode(result), units)

    def _perform(
        self,
        handler: Handler,
        operation: str,
        specification: StreamSpecification | None,
    ) -> dict[str, Any]:
        """Execute an operation. Change and describe the stream of its table, too."""
        result = handler.perform(operation)
        for table in described_tables(result):
            if specification is not None:
                self._changes.specify(table, specification)
                is_on = specification.stream_enabled
                handler.record_writes(table["TableName"], is_on=is_on)
            if operation == "DeleteTable":
                self._changes.delete_table(table)
            self._changes.describe(table)
        return result

    def _expire(self, origin: Caller, table: str, now: float) -> int:
        handler = self._tables(origin.account, origin.region, {})
        handler.delete_expired(table, now)
        changes = [
            (name, change._replace(is_expiry=True))
            for name, change in handler.changes()
        ]
        self._changes.append(origin, changes)
        return len(changes)


# The part of a KeyConditionExpression that compares the partition key.
_PARTITION = re.compile(r"(#\w+|\w+)\s*=\s*(:\w+)")


def partition_keys(request: Mapping[str, Any]) -> list[str]:
    """Return the partition keys of the rows that a request concerns.

    This is for tables whose partition key is a text named ``pk``.
    """
    rows = [request[part] for part in ("Key", "Item") if part in request]
    names = request.get("ExpressionAttributeNames", {})
    values = request.get("ExpressionAttributeValues", {})
    rows += [
        {names.get(name, name): values.get(value, {})}
        for name, value in _PARTITION.findall(request.get("KeyConditionExpression", ""))
    ]
    return [row["pk"]["S"] for row in rows if "S" in row.get("pk", {})]


class _Part(msgspec.Struct, rename="pascal"):
    table_name: str


class _Several(msgspec.Struct, rename="pascal"):
    """The tables that a batch or a transaction names."""

    request_items: dict[str, Any] = {}
    transact_items: list[dict[str, _Part]] = []


def table_actions(operation: str, body: bytes) -> list[tuple[str, str]]:
    """Return the actions that a batch or transaction needs, each with its table.

    A transaction needs those of its parts. Return nothing for other requests, and for
    those that moto refuses.
    """
    if not operation.startswith(("Batch", "Transact")):
        return []
    try:
        found = msgspec.json.decode(body, type=_Several)
    except (ValueError, msgspec.MsgspecError):
        return []
    actions = [(operation, table) for table in found.request_items]
    for item in found.transact_items:
        actions += [(f"{kind}Item", part.table_name) for kind, part in item.items()]
    return actions


def parse(body: bytes) -> dict[str, Any]:
    """Parse a request's body. Raise AwsError if it isn't a JSON object."""
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):  # ValueError: not UTF-8
        text = "The body is not a JSON object"
        raise AwsError("SerializationException", text) from None


def error_answer(error: AwsError) -> Answer:
    """Return the response for an error."""
    body = json.dumps({"__type": PREFIX + error.code, "message": error.message})
    return Answer(error.status, body.encode(), error=error.code)


def _failure(error: Exception, units: Units) -> Answer:
    # moto's own errors contain a response. Other errors are defects.
    status, body = getattr(error, "code", None), getattr(error, "description", None)
    if not isinstance(status, int) or not isinstance(body, str):
        message = f"the embedded DynamoDB failed: {error!r}"
        return error_answer(AwsError("InternalServerError", message, 500))
    code = json.loads(body)["__type"].rpartition("#")[2]
    return Answer(status, body.encode(), units, code)


class _Measured:
    """Measures the capacity units that one request consumes."""

    def __init__(self, backend: Any, operation: str, request: dict[str, Any]) -> None:
        self._backend, self._operation = backend, operation
        self._request = request
        self._table = backend.tables.get(request.get("TableName"))
        self._old = self._item()

    def units(self, result: dict[str, Any]) -> Units:
        """Return the units that the request consumed. Call this after the request."""
        if self._table is None:
            return Units()
        if self._operation in _WRITES:
            keys = [
                key["AttributeName"]
                for index in self._table.indexes
                for key in index.schema
                if key["KeyType"] == "RANGE"
            ]
            return Units(write=write_units(self._old, self._item(), keys))
        if self._operation in _READS:
            items = result.get("Items") or [result.get("Item") or {}]
            consistent = bool(self._request.get("ConsistentRead"))
            return Units(read=read_units(items, consistent=consistent))
        return Units()

    def _item(self) -> Item | None:
        """Return the present state of the item that the request writes, or None."""
        if self._table is None or self._operation not in _WRITES:
            return None
        values = self._request.get("Key") or self._request.get("Item") or {}
        names = [key["AttributeName"] for key in self._table.schema]
        if not all(name in values for name in names):
            return None
        key = {name: values[name] for name in names}
        row = self._backend.get_item(self._request["TableName"], key)
        return None if row is None else row.to_json()["Attributes"]
