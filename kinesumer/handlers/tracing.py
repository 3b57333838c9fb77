"""Read producers' trace contexts from records, and trace calls of the handler."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler_function import HandlerFunction
from kinesumer.handlers.shard_queue import WorkItem
from kinesumer.model.records import Record
from kinesumer.telemetry.api import Telemetry

Traceparent = Callable[[Record], str | None]


def read_traceparent(option: object) -> Traceparent | None:
    """Return a function that finds a record's W3C traceparent.

    The option ``"headers.traceparent"`` means the field ``traceparent`` of the object
    ``headers`` in a record's JSON data. Raises ConfigurationError.
    """
    if option is None:
        return None
    if isinstance(option, str) and all(option.split(".")):
        return _field_at(option)
    if isinstance(option, str) or not callable(option):
        raise ConfigurationError(
            f"traceparent={option!r} must be a path into JSON, such as "
            "'headers.traceparent', or a function of a record"
        )
    return option


def _field_at(path: str) -> Traceparent:
    """Return a function that reads a field of a record's JSON data.

    The function returns None if the data has no such field.
    """
    names, decode = path.split("."), msgspec.json.Decoder().decode

    def find(record: Record) -> str | None:
        try:
            value: Any = decode(record.data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, str) else None

    return find


class Tracing:
    """Traces and counts calls of the handler."""

    def __init__(
        self, telemetry: Telemetry, traceparent: Traceparent | None, *, links: bool
    ) -> None:
        self._telemetry = telemetry
        self._traceparent = traceparent if links else None

    def span(self, item: WorkItem, stop: int) -> AbstractContextManager[object]:
        """Return a span for a call with the records of an item up to ``stop``."""
        arn, count = item.queue.owned.key.stream_arn, stop - item.done
        if (find := self._traceparent) is None:
            return self._telemetry.trace("handle", arn, records=count)
        found = (find(record) for record in item.records[item.done : stop])
        traceparents = [text for text in found if text]
        return self._telemetry.trace("handle", arn, traceparents, records=count)

    def failed(self, item: WorkItem, error: BaseException) -> None:
        """Count a call that raised."""
        owned = item.queue.owned
        self._telemetry.count("handler_failures", owned.key.stream_arn)
        owned.outcomes.failed += 1
        owned.outcomes.calls += 1
        owned.outcomes.fail(error, item.current.position)

    def cannot_decode(self, item: WorkItem, error: BaseException) -> None:
        """Count a record that cannot be decoded."""
        owned = item.queue.owned
        self._telemetry.count("decode_failures", owned.key.stream_arn)
        owned.outcomes.fail(error, item.current.position)


def traced(
    handler: HandlerFunction, telemetry: Telemetry, find: Traceparent
) -> HandlerFunction:
    """Return a handler of records that continues the producers' traces."""
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
