"""The engine's interface to telemetry, and the values that gauges show."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager


class StreamState(NamedTuple):
    """One stream in one client at the time of collection."""

    arn: str
    current_leases: int
    leases_to_take: int
    total_leases: int | None
    """None: this client doesn't lead."""
    millis_behind: int | None
    """None: nothing was read yet."""
    uncommitted: int


class ClientState(NamedTuple):
    """One client at the time of collection."""

    app: str
    buffered_bytes: int
    num_workers: int | None
    """None: this client doesn't lead."""
    streams: tuple[StreamState, ...]


class Telemetry:
    """Receives counts, durations and spans by the names of ``telemetry.names``.

    This class ignores them, for tests and simulations.
    """

    def count(
        self, counter: str, stream_arn: str = "", amount: int = 1, *, service: str = ""
    ) -> None:
        """Increase a counter."""

    def measure(
        self, duration: str, stream_arn: str = ""
    ) -> AbstractContextManager[object]:
        """Measure the block's duration unless the block raises.

        The block of a round or of a hand-over has a span, too.
        """
        return nullcontext()

    def trace(
        self,
        span: str,
        stream_arn: str = "",
        attributes: Mapping[str, int] | None = None,
        traceparents: Iterable[str] = (),
    ) -> AbstractContextManager[object]:
        """Trace the block, linked to the producers' spans."""
        return nullcontext()

    def trace_record(
        self, stream_arn: str, traceparent: str
    ) -> AbstractContextManager[object]:
        """Trace a handler's call for one record as a child of its producer's span."""
        return nullcontext()
