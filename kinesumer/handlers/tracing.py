"""Read producers' trace contexts from records, and trace calls of the handler."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.telemetry.names import HANDLE_SPAN, HANDLER_FAILURES, RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.handlers.signature import Handler
    from kinesumer.model.records import Record
    from kinesumer.telemetry.api import Telemetry

    Traceparent = Callable[[Record], str | None]


def read_traceparent(option: object) -> Traceparent | None:
    """Return a function that finds a record's W3C traceparent.

    ``"headers.traceparent"`` is that field of the object ``headers`` in the object that
    a record's data is. Raises ConfigurationError.
    """
    if option is None:
        return None
    if isinstance(option, str) and all(option.split(".")):
        return field_at(option)
    if isinstance(option, str) or not callable(option):
        raise ConfigurationError(
            f"traceparent={option!r} must be a path into JSON, such as "
            "'headers.traceparent', or a function of a record"
        )
    return option


def field_at(path: str) -> Traceparent:
    """Return what reads a field of JSON; records that don't have it have no trace."""
    names, decode = path.split("."), msgspec.json.Decoder().decode

    def find(record: Record) -> str | None:
        try:
            found: Any = decode(record.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, str) else None

    return find


class Tracing:
    """Traces and counts calls of the handler."""

    def __init__(
        self, telemetry: Telemetry, traceparent: Traceparent | None, *, links: bool
    ) -> None:
        self._telemetry = telemetry
        self._traceparent = traceparent if links else None

    def span(self, item: WorkItem, stop: int) -> AbstractContextManager[object]:
        """Trace user code at the records of an item up to ``stop``."""
        arn, count = item.queue.owned.key.stream_arn, stop - item.done
        if (find := self._traceparent) is None:
            return self._telemetry.trace(HANDLE_SPAN, arn, {RECORDS: count})
        found = (find(record) for record in item.records[item.done : stop])
        traceparents = [text for text in found if text]
        return self._telemetry.trace(HANDLE_SPAN, arn, {RECORDS: count}, traceparents)

    def failed(self, item: WorkItem) -> None:
        """Count a call that raised."""
        self._telemetry.count(HANDLER_FAILURES, item.queue.owned.key.stream_arn)


def traced(handler: Handler, telemetry: Telemetry, find: Traceparent) -> Handler:
    """Return a handler of records whose calls are part of the producers' traces."""
    call = handler.call

    def span(record: Record) -> AbstractContextManager[object]:
        text = find(record)
        if not text:
            return nullcontext()
        return telemetry.trace_record(record.stream_arn, text)

    async def awaited(record: Record) -> None:
        with span(record):
            await call(record)

    def called(record: Record) -> object:
        with span(record):
            return call(record)

    return handler._replace(call=awaited if handler.is_async else called)
