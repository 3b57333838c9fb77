"""Run a handler of ``run()`` in a Lambda function that Kinesis invokes.

Lambda reads the shards and keeps the positions, so there is no table. The function's
event source mapping must have ``ReportBatchItemFailures`` as its response type.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from random import Random
from types import UnionType
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, overload

from kinesumer.decoding.decoders import Decode
from kinesumer.errors import ConfigurationError
from kinesumer.handlers.handler import (
    CallKeywords,
    Handle,
    Handler,
    RunOptions,
    read_run_options,
)
from kinesumer.handlers.invocation import (
    ANSWER_SECONDS,
    Resources,
    by_shard,
    handle_records,
    new_callers,
)
from kinesumer.model.records import Record
from kinesumer.ports import Clock
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.runtime.threads import MAX_THREADS, Threads
from kinesumer.telemetry.api import Telemetry
from kinesumer.wire.aggregation import open_all
from kinesumer.wire.record_shapes import read_records

__all__ = [
    "BatchHandler",
    "BatchItemFailure",
    "BatchResponse",
    "LambdaContext",
    "batch_handler",
]

V = TypeVar("V")
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class BatchItemFailure(TypedDict):
    """A record from which Lambda has to repeat its shard."""

    itemIdentifier: str


class BatchResponse(TypedDict):
    """The answer to an event: where Lambda has to repeat, or nothing if all is done."""

    batchItemFailures: list[BatchItemFailure]


class LambdaContext(Protocol):
    """The parts of Lambda's context that a function uses."""

    @property
    def function_name(self) -> str:
        """The function's name."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the time until Lambda ends the invocation, in milliseconds."""


@overload
def batch_handler(
    handler: Handle[bytes] | Handler, **options: Unpack[CallKeywords]
) -> BatchHandler: ...
@overload
def batch_handler(
    handler: Handle[V],
    *,
    decode: Decode[V] | UnionType,
    **options: Unpack[CallKeywords],
) -> BatchHandler: ...
def batch_handler(
    handler: Handle[Any] | Handler,
    *,
    decode: Any = None,
    **options: Unpack[CallKeywords],
) -> BatchHandler:
    """Return a Lambda function that calls ``handler`` with the records of its events.

    ``handler`` is a function as ``run()`` takes it, with records or batches, or a
    ``Handler``. The options have the names and the meaning of those of ``run()``:
    ``decode``, ``batch``, ``concurrency``, ``retries``, ``dead_letters``,
    ``dead_letter_limit``, ``middleware`` and ``traceparent``. KPL aggregates are
    opened, and all user records are handled in the order of their shard.

    The function returns the first record of each shard that is not done, in Lambda's
    format of a partial batch response. A record that still fails after ``retries`` is
    such a record, unless ``dead_letters`` stores it: then the next record is handled.
    ``on_failure`` of a ``Handler`` makes no other difference. If the time left does not
    suffice for the next attempt, Lambda's next event begins with this record.

    Half a second before the time is over, calls that have not returned are cancelled.
    The event loop and the targets of dead letters stay open for the next event.

    Raises ConfigurationError for options that ``run()`` would refuse. The function
    raises it for an event that is not from a Kinesis stream.
    """
    options_read = read_run_options(handler, decode=decode, **options)
    return BatchHandler(options_read, SystemClock(), Random(), asyncio.new_event_loop)


class BatchHandler:
    """A Lambda function: ``batch_handler()`` makes it, and Lambda calls it."""

    def __init__(
        self, options: RunOptions, clock: Clock, random: Random, new_loop: NewLoop
    ) -> None:
        self._options, self._clock, self._random = options, clock, random
        self._runner = asyncio.Runner(loop_factory=new_loop)
        self._open: _Process | None = None  # None before the first event

    def __call__(
        self, event: Mapping[str, Any], context: LambdaContext
    ) -> BatchResponse:
        """Handle an event. Raises errors that no record is the cause of."""
        return self._runner.run(self._handle(event, context))

    def close(self) -> None:
        """Close the targets of dead letters and the event loop, as tests need it."""
        if self._open is not None:
            self._runner.run(self._open.aclose())
        self._runner.close()

    async def _handle(
        self, event: Mapping[str, Any], context: LambdaContext
    ) -> BatchResponse:
        seconds = context.get_remaining_time_in_millis() / 1000 - ANSWER_SECONDS
        records = _records_of(event, context.function_name)
        if self._open is None:
            self._open = await self._start(context.function_name)
        opened, unopened = open_all(records)
        for _, broken in by_shard(unopened):
            self._open.failure_log.record_corrupt_aggregates(broken)
        results = await handle_records(self._open.shared, opened, seconds)
        return {
            "batchItemFailures": [
                {"itemIdentifier": result.failed.sequence_number}
                for result in results
                if result.failed is not None
            ]
        }

    async def _start(self, app: str) -> _Process:
        clock, options = self._clock, self._options
        telemetry = _telemetry(app, clock)
        callers = new_callers(options, app, self._random)
        clients = None
        if isinstance(options.dead_letters, str):
            # This import is slow.
            from kinesumer.aws.session import ClientFactory

            clients = callers.clients = ClientFactory()
        threads = Threads(MAX_THREADS, "kinesumer-handler")
        shared = Resources(options, callers, threads, telemetry, clock, app)
        return _Process(shared, FailureLog(clock, telemetry), clients)


class _Process:
    """The state that one process of a function keeps between events."""

    def __init__(
        self, shared: Resources, failure_log: FailureLog, clients: Any
    ) -> None:
        self.shared, self.failure_log = shared, failure_log
        self._clients = clients

    async def aclose(self) -> None:
        """Close the targets of dead letters, and what they use."""
        self.shared.threads.close()
        try:
            await self.shared.callers.aclose()
        finally:
            if self._clients is not None:
                await self._clients.__aexit__(None, None, None)


def _records_of(event: Mapping[str, Any], app: str) -> list[Record]:
    """Return an event's records. Raise ConfigurationError if it is of another kind."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise ConfigurationError(
            f"the event {event!r:.100} has no list of Records: add a Kinesis stream "
            "as an event source mapping of the function"
        )
    if "window" in event:
        raise ConfigurationError(
            "the event belongs to a tumbling window, which needs a state in the "
            "answer: set TumblingWindowInSeconds of the event source mapping to 0"
        )
    found = read_records(records, app)
    for index, record in enumerate(found):
        if record.source is None:
            raise ConfigurationError(
                f"Records[{index}] has no eventID with a shard, or no eventSourceARN: "
                "pass events as Lambda does for a Kinesis stream"
            )
    return found


def _telemetry(app: str, clock: Clock) -> Telemetry:
    """Return what reports to OpenTelemetry, if the program has loaded it."""
    # An SDK imports it. Without one, the import would only delay the first event.
    if "opentelemetry.trace" not in sys.modules:
        return Telemetry()
    from kinesumer.telemetry.otel import OpenTelemetry

    return OpenTelemetry(app, clock)
