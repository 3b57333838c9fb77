"""The log of requests: counters, and the latest requests in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesumer.local.faults import Call

LATEST = 20_000
"""Number of requests that are kept in order. The counters include all requests."""


class Entry(NamedTuple):
    """One request and its result."""

    at: float
    service: str
    operation: str
    resource: str
    shard: str | None
    account: str
    caller: str
    user_agent: str
    status: int
    error: str | None
    """Error code, or ``dropped`` or ``refused`` if a fault closed the connection."""
    read_units: float
    write_units: float


class Count(NamedTuple):
    """The number of a caller's requests of one operation on one resource."""

    service: str
    operation: str
    resource: str
    caller: str
    error: str | None
    requests: int
    read_units: float
    write_units: float


class RequestLog:
    """The requests of all callers to the embedded AWS."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, str, str | None], list[float]] = {}
        self.latest: deque[Entry] = deque(maxlen=LATEST)

    def add(
        self,
        call: Call,
        *,
        at: float,
        status: int,
        error: str | None = None,
        read_units: float = 0.0,
        write_units: float = 0.0,
    ) -> None:
        """Add one request."""
        key = (call.service, call.operation, call.resource, call.caller, error)
        sums = self._counts.setdefault(key, [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += read_units
        sums[2] += write_units
        self.latest.append(
            Entry(
                at,
                call.service,
                call.operation,
                call.resource,
                call.shard,
                call.account,
                call.caller,
                call.user_agent,
                status,
                error,
                read_units,
                write_units,
            )
        )

    def counts(self) -> list[Count]:
        """Return the counters, one for each caller, action, resource and outcome."""
        return [
            Count(*key, requests=int(number), read_units=read, write_units=write)
            for key, (number, read, write) in self._counts.items()
        ]

    def count(self, service: str = "", operation: str = "") -> int:
        """Return the number of requests of a service and operation."""
        return sum(
            count.requests
            for count in self.counts()
            if service in ("", count.service) and operation in ("", count.operation)
        )

    def clear(self) -> None:
        """Remove all requests and counters."""
        self._counts.clear()
        self.latest.clear()
