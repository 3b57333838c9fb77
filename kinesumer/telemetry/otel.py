"""Telemetry through OpenTelemetry's API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram
from opentelemetry.trace import Link, Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kinesumer.model.streams import ShardKey
from kinesumer.ports import Clock
from kinesumer.telemetry import conventions
from kinesumer.telemetry.api import ClientState, ProducerState, Telemetry
from kinesumer.telemetry.conventions import (
    COMMIT,
    CREATE,
    GET,
    PROCESS,
    PUT,
    Attributes,
    Operation,
)
from kinesumer.telemetry.instruments import (
    MESSAGE_COUNTERS,
    Instruments,
    process_instruments,
)

MAX_LINKS = 128  # OpenTelemetry's limit of links per span
MAX_TRACEPARENT_CHARACTERS = 512  # a header has 55 now, and may have more later
SPANS = ("round", "hand_over")  # durations that also have spans
OPERATIONS = {"commit": COMMIT}  # the measures that are operations of messaging


class OpenTelemetry(Telemetry):
    """Passes telemetry to the SDK that the application has set up, if any."""

    def __init__(
        self, app: str | None, clock: Clock, instruments: Instruments | None = None
    ) -> None:
        # A producer has no app.
        self._app: Attributes = {} if app is None else {conventions.GROUP: app}
        self._clock = clock
        self._instruments = instruments or process_instruments()
        self._tracer = self._instruments.tracer
        self._known: dict[tuple[str, Operation | None], Attributes] = {}
        self._unwatch: Callable[[], None] = lambda: None

    def watch(self, state: Callable[[], ClientState]) -> None:
        """Let gauges read a client's state, in the thread of the exporter."""
        self._instruments.clients.append(state)
        self._unwatch = partial(self._instruments.clients.remove, state)

    def watch_producer(self, state: Callable[[], ProducerState]) -> None:
        """Let gauges read a producer's state, in the thread of the exporter."""
        self._instruments.producers.append(state)
        self._unwatch = partial(self._instruments.producers.remove, state)

    def unwatch(self) -> None:
        """End ``watch()`` or ``watch_producer()``, if one was called."""
        unwatch, self._unwatch = self._unwatch, lambda: None
        unwatch()

    def count(
        self,
        name: str,
        stream_arn: str = "",
        amount: int = 1,
        *,
        service: str = "",
        error_type: str = "",
    ) -> None:
        """Increase a counter."""
        attributes = self._attributes(stream_arn)
        if name in MESSAGE_COUNTERS:
            operation = MESSAGE_COUNTERS[name][1]
            attributes = {**attributes, conventions.OPERATION_NAME: operation}
        if service:
            attributes = {**attributes, "kinesumer.service": service}
        if error_type:
            attributes = {**attributes, conventions.ERROR_TYPE: error_type}
        self._instruments.counters[name].add(amount, attributes)

    def measure(
        self, name: str, stream_arn: str = ""
    ) -> AbstractContextManager[object]:
        """Measure the block's duration."""
        if name in OPERATIONS:
            attributes = self._attributes(stream_arn, OPERATIONS[name])
            return Block(None, self._instruments.operations, attributes, self._clock)
        return self._measured(name, stream_arn)

    @contextmanager
    def _measured(self, name: str, stream_arn: str) -> Iterator[None]:
        attributes = self._attributes(stream_arn)
        with (
            self._span(f"kinesumer.{name}", SpanKind.INTERNAL, attributes)
            if name in SPANS
            else nullcontext()
        ):
            started = self._clock.now()
            yield
            seconds = self._clock.now() - started
            self._instruments.durations[name].record(seconds, attributes)

    def note_read(self, stream_arn: str, seconds: float) -> None:
        """Measure a request for records that was answered."""
        attributes = self._attributes(stream_arn, GET)
        self._instruments.operations.record(seconds, attributes)

    def trace_commit(self, shards: int) -> AbstractContextManager[object]:
        """Trace the block, which stores the positions of shards of all streams."""
        attributes = self._attributes("", COMMIT)
        return self._span(
            COMMIT.span_name(""),
            SpanKind.CLIENT,
            attributes | {"kinesumer.shards": shards},
        )

    def trace_put(
        self, stream_arn: str, count: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace and measure a request with so many records, linked to their origins."""
        attributes = self._attributes(stream_arn, PUT)
        return self._timed_span(
            PUT, self._instruments.operations, attributes, {}, count, traceparents
        )

    def trace_batch(
        self, shard: ShardKey, count: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace and measure a handler's call with records, linked to their origins."""
        attributes = self._attributes(shard.stream_arn, PROCESS)
        partition = {conventions.PARTITION: shard.shard_id}
        processing = self._instruments.processing
        return self._timed_span(
            PROCESS, processing, attributes, partition, count, traceparents
        )

    def trace_record(
        self, shard: ShardKey, position: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record within the trace of its producer."""
        producer = _producer_context(traceparent)
        found = trace.get_current_span(producer), trace.get_current_span()
        links = [
            Link(span.get_span_context())
            for span in found
            if span.get_span_context().is_valid
        ]
        attributes = {
            **self._attributes(shard.stream_arn, PROCESS),
            conventions.PARTITION: shard.shard_id,
            conventions.MESSAGE_ID: position,
        }
        name = PROCESS.span_name(attributes[conventions.DESTINATION])
        return self._span(
            name, SpanKind.CONSUMER, attributes, links=links, context=producer
        )

    def create_message(self, stream_arn: str) -> str:
        """Trace that a record was made. Return its traceparent, or an empty text."""
        attributes = self._attributes(stream_arn, CREATE)
        name = CREATE.span_name(attributes[conventions.DESTINATION])
        span = self._tracer.start_span(
            name, kind=SpanKind.PRODUCER, attributes=attributes
        )
        span.end()
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
        return carrier.get("traceparent", "")

    def _timed_span(
        self,
        operation: Operation,
        histogram: Histogram,
        attributes: Attributes,
        partition: Attributes,
        count: int,
        traceparents: Iterable[str],
    ) -> Block:
        """Trace and measure the block. Metrics do not get the partition."""
        span = self._tracer.start_as_current_span(
            operation.span_name(attributes[conventions.DESTINATION]),
            kind=SpanKind.CONSUMER if operation is PROCESS else SpanKind.CLIENT,
            attributes={**attributes, **partition, conventions.MESSAGE_COUNT: count},
            links=links_to(traceparents),
        )
        return Block(span, histogram, attributes, self._clock)

    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[str, str | int],
        *,
        links: Sequence[Link] = (),
        context: Context | None = None,
    ) -> Block:
        """Trace the block as the current span."""
        span = self._tracer.start_as_current_span(
            name, context=context, kind=kind, attributes=attributes, links=links
        )
        return Block(span, None, {}, self._clock)

    def _attributes(
        self, stream_arn: str, operation: Operation | None = None
    ) -> Attributes:
        """Return the attributes of a stream, and of an operation with its messages."""
        known = self._known.get((stream_arn, operation))
        if known is None:
            known = self._app | conventions.stream_attributes(stream_arn)
            if operation is not None:
                known |= operation.attributes
            self._known[stream_arn, operation] = known
        return known


class Block:
    """A traced or measured block. If it raises, both get the type of the error.

    A class takes half the time of generators, and handlers are called often.
    """

    __slots__ = ("_attributes", "_clock", "_entered", "_histogram", "_span", "_started")

    def __init__(
        self,
        span: AbstractContextManager[Span] | None,
        histogram: Histogram | None,
        attributes: Attributes,
        clock: Clock,
    ) -> None:
        self._span, self._histogram = span, histogram
        self._attributes, self._clock = attributes, clock
        self._entered: Span | None = None

    def __enter__(self) -> None:
        if self._span is not None:
            self._entered = self._span.__enter__()
        self._started = self._clock.now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        attributes = self._attributes
        if isinstance(error, Exception):
            found = conventions.error_attributes(error)
            attributes = attributes | found
            if self._entered is not None:
                self._entered.set_attributes(found)
        if self._histogram is not None:
            self._histogram.record(self._clock.now() - self._started, attributes)
        if self._span is not None:
            self._span.__exit__(kind, error, trace)


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Return one link per producer's span. Invalid headers are left out."""
    links: list[Link] = []
    for traceparent in dict.fromkeys(traceparents):
        span = trace.get_current_span(_producer_context(traceparent))
        if span.get_span_context().is_valid and len(links) < MAX_LINKS:
            links.append(trace.Link(span.get_span_context()))
    return links


def _producer_context(traceparent: str) -> Context:
    """Return the context of a W3C traceparent header, or an empty context."""
    # The text comes from producers, so it may be long. Some versions of OpenTelemetry
    # take seconds to parse a long sequence of spaces, and others log each text that is
    # too long.
    if len(traceparent) > MAX_TRACEPARENT_CHARACTERS:
        return Context()
    carrier = {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, Context())
