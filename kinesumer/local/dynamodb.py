"""DynamoDB by moto, on one thread, so that each request is atomic."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.local.request import AwsError

if TYPE_CHECKING:
    from concurrent.futures import Future


Item = dict[str, dict[str, Any]]
"""An item as DynamoDB's JSON has it."""


class Units(NamedTuple):
    """Read and write capacity units."""

    read: float = 0.0
    write: float = 0.0


def read_units(items: list[Item], *, consistent: bool) -> float:
    """Return the units of reading items in one request: 4 KB each, half if stale."""
    blocks = max(1, math.ceil(sum(map(item_bytes, items)) / 4096))
    return blocks * (1.0 if consistent else 0.5)


def write_units(old: Item | None, new: Item | None, index_keys: list[str]) -> float:
    """Return the units of one write: 1 KB each, and what it changes in the indexes.

    An index that projects keys only is written when the item's index key changes:
    once if it comes or goes, twice if it moves.
    """
    size = max(item_bytes(old or {}), item_bytes(new or {}), 1)
    units = math.ceil(size / 1024)
    for key in index_keys:
        before, after = (old or {}).get(key), (new or {}).get(key)
        if before != after:
            units += (before is not None) + (after is not None)
    return float(units)


def item_bytes(item: Item) -> int:
    """Return an item's size as DynamoDB counts it."""
    return sum(len(name.encode()) + _value_bytes(item[name]) for name in item)


def _value_bytes(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content.strip("-0.")) // 2 + 2
        case "B":
            return len(content if isinstance(content, bytes) else b64decode(content))
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: part}) for part in content)
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
        case _:
            return 1


PREFIX = "com.amazonaws.dynamodb.v20120810#"
_WRITES = ("PutItem", "UpdateItem", "DeleteItem")
_READS = ("GetItem", "Query", "Scan")


class Answer(NamedTuple):
    """A response, and the capacity units that it consumed."""

    status: int
    body: bytes
    units: Units = Units()
    error: str | None = None


class DynamoDB:
    """All tables of all accounts and regions.

    Loading moto takes most of a second: it happens in the thread, while other requests
    are served.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "kinesumer-dynamodb")
        self._tables: Any = None

    def warm_up(self) -> None:
        """Start to load moto before the first request."""
        self._thread.submit(self._load)

    def submit(
        self, account: str, region: str, operation: str, body: bytes
    ) -> Future[Answer]:
        """Execute a request after the earlier ones."""
        return self._thread.submit(self._call, account, region, operation, body)

    def close(self) -> None:
        """Stop the thread after all submitted requests."""
        self._thread.shutdown()

    def _call(self, account: str, region: str, operation: str, body: bytes) -> Answer:
        request = parse(body)
        if str(request.get("TableName")).startswith("arn:"):
            request["TableName"] = request["TableName"].rpartition("/")[2]
        handler = self._load()(account, region, request)
        measured = _Measured(handler.dynamodb_backend, operation, request)
        try:
            result = handler.perform(operation)
        except AwsError as error:
            return _refused(error)
        except Exception as error:
            return _failed(error, measured.units({}))
        units = measured.units(result)
        _report(request, result, units)
        return Answer(200, handler.encode(result), units)

    def _load(self) -> Any:
        if self._tables is None:
            from kinesumer.local.moto_tables import tables

            self._tables = tables()
        return self._tables


def parse(body: bytes) -> dict[str, Any]:
    """Return a request's JSON object; raise AwsError if the body isn't one."""
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        request = None
    if not isinstance(request, dict):
        raise AwsError("SerializationException", "The body is not a JSON object")
    return request


def refusal(error: AwsError) -> bytes:
    """Return an error's body as DynamoDB writes it."""
    return json.dumps(
        {"__type": PREFIX + error.code, "message": error.message}
    ).encode()


def _refused(error: AwsError) -> Answer:
    return Answer(error.status, refusal(error), error=error.code)


def _failed(error: Exception, units: Units) -> Answer:
    # moto's errors know their answer; anything else is a fault of moto or of ours,
    # and the client shall see it as one.
    status, body = getattr(error, "code", None), getattr(error, "description", None)
    if not isinstance(status, int) or not isinstance(body, str):
        what = f"the embedded DynamoDB failed: {error!r}"
        return _refused(AwsError("InternalServerError", what, 500))
    code = json.loads(body)["__type"].rpartition("#")[2]
    return Answer(status, body.encode(), units, code)


class _Measured:
    """Measures the capacity units that one request consumes."""

    def __init__(self, backend: Any, operation: str, request: dict[str, Any]) -> None:
        self._backend, self._operation = backend, operation
        self._request = request
        self._table = backend.tables.get(request.get("TableName"))
        self._key = self._primary_key()
        self._old = self._item()

    def units(self, result: dict[str, Any]) -> Units:
        """Return the units, now that it is done."""
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
            found = result.get("Items") or [result.get("Item") or {}]
            stale = not self._request.get("ConsistentRead")
            return Units(read=read_units(found, consistent=not stale))
        return Units()

    def _primary_key(self) -> dict[str, Any] | None:
        if self._table is None or self._operation not in _WRITES:
            return None
        given = self._request.get("Key") or self._request.get("Item") or {}
        names = [key["AttributeName"] for key in self._table.schema]
        return {n: given[n] for n in names} if all(n in given for n in names) else None

    def _item(self) -> Item | None:
        if self._key is None:
            return None
        found = self._backend.get_item(self._request["TableName"], self._key)
        if found is None:
            return None
        item: Item = found.to_json()["Attributes"]
        return item


def _report(request: dict[str, Any], result: dict[str, Any], units: Units) -> None:
    result.pop("ConsumedCapacity", None)
    if request.get("ReturnConsumedCapacity", "NONE") != "NONE":
        result["ConsumedCapacity"] = {
            "TableName": request["TableName"],
            "CapacityUnits": units.read + units.write,
        }
