"""The interface through which the engine reports metrics and spans.

``docs/monitoring.md`` describes the names. What OpenTelemetry's semantic conventions
for messaging define has their names (``conventions.py``). Others have the prefix
``kinesumer.``, and the KCL's name in snake case if the KCL has the same metric.
Attributes of metrics don't contain shards, records or clients. The resource of
OpenTelemetry's SDK tells processes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from kinesumer.model.incidents import Incident
from kinesumer.model.streams import ShardKey


class StreamState(NamedTuple):
    """The values of the gauges for one stream in one client."""

    arn: str
    current_leases: int = 0
    leases_to_take: int = 0
    total_leases: int | None = None  # None unless this client leads
    millis_behind_latest: int | None = None  # None before the first read
    records_uncommitted: int = 0
    # 1 if the client polls since it can't use fan-out; None if it wasn't requested.
    fan_out_polling: int | None = None
    # The shards that are read one record at a time, since their owners died.
    isolated_leases: int = 0


class ClientState(NamedTuple):
    """The values of the gauges for one client."""

    app: str
    buffered_bytes: int
    num_workers: int | None  # None unless this client leads
    streams: tuple[StreamState, ...]
    work: float | None = None  # in seconds per second; None until it is measured
    clients_wanted: int | None = None  # None unless this client leads
    incidents: tuple[Incident, ...] = ()


class ProducerState(NamedTuple):
    """The values of the gauges for one producer."""

    arn: str
    put_buffered_bytes: int
    incidents: tuple[Incident, ...] = ()


class Telemetry:
    """Counts, measures and traces. This base class does nothing."""

    def watch(self, state: Callable[[], ClientState]) -> None:
        """Let gauges read a client's state."""

    def count(
        self,
        name: str,
        stream_arn: str = "",
        amount: int = 1,
        *,
        service: str = "",
        error_type: str = "",
    ) -> None:
        """Increase a counter.

        ``service`` is the AWS service that throttles, ``error_type`` why messages were
        not sent.
        """

    def measure(
        self, name: str, stream_arn: str = ""
    ) -> AbstractContextManager[object]:
        """Measure the block's duration unless the block raises.

        The measures ``round`` and ``hand_over`` are also traced as spans. ``commit``
        counts as an operation of messaging, and is also measured if the block raises.
        """
        return nullcontext()

    def note_read(self, stream_arn: str, seconds: float) -> None:
        """Measure a request for records that was answered."""

    def trace_commit(self, shards: int) -> AbstractContextManager[object]:
        """Trace the block, which stores the positions of shards of all streams."""
        return nullcontext()

    def trace_put(
        self, stream_arn: str, count: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace and measure a request with so many records, linked to their origins."""
        return nullcontext()

    def trace_batch(
        self, shard: ShardKey, count: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        """Trace and measure a handler's call with records, linked to their origins."""
        return nullcontext()

    def trace_record(
        self, shard: ShardKey, position: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record within the trace of its producer.

        The span is linked to the span of its producer, and to that of the batch.
        """
        return nullcontext()

    def create_message(self, stream_arn: str) -> str:
        """Trace that a record was made. Return its traceparent; empty without a trace.

        A consumer links what it does to this span.
        """
        return ""
