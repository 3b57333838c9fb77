"""Apply to tables' streams what DynamoDB's requests do to the tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from kinesumer.testing.kinesis.requests import invalid_request, resource_arn
from kinesumer.testing.kinesis.service import Caller
from kinesumer.testing.table_streams.changes import Change, ViewType
from kinesumer.testing.table_streams.service import TableStreams

Description = dict[str, Any]  # of a table


class StreamSpecification(msgspec.Struct, rename="pascal"):
    """A request to enable a table's stream with a view type, or to disable it."""

    stream_enabled: bool
    stream_view_type: ViewType | None = None


def take_specification(
    operation: str, request: dict[str, Any]
) -> StreamSpecification | None:
    """Remove the specification of a stream from a request, and return it.

    So moto creates tables without streams. Raise AwsError if it is invalid.
    """
    if operation not in ("CreateTable", "UpdateTable"):
        return None
    content = request.pop("StreamSpecification", None)
    if content is None:
        return None
    try:
        specification = msgspec.convert(content, StreamSpecification)
    except msgspec.ValidationError as error:
        raise invalid_request(f"1 validation error detected: {error}") from None
    if specification.stream_enabled != (specification.stream_view_type is not None):
        raise invalid_request(
            "One or more parameter values were invalid: StreamViewType is needed if "
            "StreamEnabled is true, and not allowed if it is false"
        )
    if operation == "CreateTable" and not specification.stream_enabled:
        return None
    return specification


def described_tables(result: dict[str, Any]) -> list[Description]:
    """Return the descriptions of tables in the result of an operation."""
    return [result[part] for part in ("Table", "TableDescription") if part in result]


class TableChanges:
    """The streams of all tables, as DynamoDB's thread changes them."""

    def __init__(
        self, streams: TableStreams, lock: threading.RLock, now: Callable[[], float]
    ) -> None:
        self._streams, self._lock, self._now = streams, lock, now

    def specify(self, table: Description, wanted: StreamSpecification) -> None:
        """Enable or disable a table's stream. Raise AwsError if it is so already."""
        arn, view = table["TableArn"], wanted.stream_view_type
        with self._lock:
            if view is None:
                self._streams.disable(arn, self._now())
            else:
                self._streams.enable(arn, table["KeySchema"], view, self._now())

    def delete_table(self, table: Description) -> None:
        """Disable the stream of a deleted table."""
        with self._lock:
            self._streams.delete_table(table["TableArn"], self._now())

    def describe(self, table: Description) -> None:
        """Add to a table's description what it says about the stream."""
        with self._lock:
            table |= self._streams.description(table["TableArn"])

    def append(self, origin: Caller, changes: Iterable[tuple[str, Change]]) -> None:
        """Add records of changes, each with the name of its table."""
        for name, change in changes:
            table = resource_arn(
                "dynamodb", origin.region, origin.account, f"table/{name}"
            )
            with self._lock:
                self._streams.append(table, change, self._now())
