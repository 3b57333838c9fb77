"""The interface through which the engine reports metrics and spans.

``docs/monitoring.md`` describes the names, with the prefix ``kinesumer.``. If the KCL
has the same metric, the name is the KCL's name in snake case. Attributes don't contain
shards, records or clients. The resource of OpenTelemetry's SDK tells processes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from kinesumer.model.incidents import Incident


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
        self, name: str, stream_arn: str = "", amount: int = 1, *, service: str = ""
    ) -> None:
        """Increase a counter. ``service`` is the AWS service that throttles."""

    def measure(
        self, name: str, stream_arn: str = ""
    ) -> AbstractContextManager[object]:
        """Measure the block's duration unless the block raises.

        The measures ``round`` and ``hand_over`` are also traced as spans.
        """
        return nullcontext()

    def trace(
        self,
        name: str,
        stream_arn: str = "",
        traceparents: Iterable[str] = (),
        **counts: int,
    ) -> AbstractContextManager[object]:
        """Trace the block with links to producers' spans, and counts as attributes."""
        return nullcontext()

    def trace_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record as a child of its producer's span."""
        return nullcontext()
