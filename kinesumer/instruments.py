"""OpenTelemetry's instruments for what ``telemetry`` names; one set a process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kinesumer.telemetry import (
    ACCOUNT,
    APP,
    BUFFERED_BYTES,
    COMMIT_DURATION,
    CORRUPT_ROWS,
    CURRENT_LEASES,
    DATA_BYTES_PROCESSED,
    DEAD_LETTERS,
    HAND_OVER_DURATION,
    HANDLER_FAILURES,
    HEARTBEAT_DURATION,
    LEASES_TO_TAKE,
    LOST_LEASES,
    MILLIS_BEHIND_LATEST,
    NUM_WORKERS,
    RECORDS_OUTSIDE,
    RECORDS_PROCESSED,
    RECORDS_UNCOMMITTED,
    REGION,
    ROUND_DURATION,
    SECONDS,
    STREAM_NAME,
    THROTTLES,
    TOTAL_LEASES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
    from opentelemetry.trace import Tracer

    from kinesumer.telemetry import Attributes, ClientState

    Read = Callable[["ClientState"], Iterable[tuple[str, int | None]]]


class Instruments:
    """All instruments of one meter and tracer; one set serves all clients."""

    def __init__(self, meter: Meter, tracer: Tracer) -> None:
        self.tracer = tracer
        self.watched: list[Callable[[], ClientState]] = []
        counter = meter.create_counter
        self.records_processed = counter(RECORDS_PROCESSED, "{record}")
        self.data_bytes_processed = counter(DATA_BYTES_PROCESSED, "By")
        self.records_outside = counter(RECORDS_OUTSIDE, "{record}")
        self.lost_leases = counter(LOST_LEASES, "{shard}")
        self.throttles = counter(THROTTLES, "{request}")
        self.corrupt_rows = counter(CORRUPT_ROWS, "{row}")
        self.handler_failures = counter(HANDLER_FAILURES, "{call}")
        self.dead_letters = counter(DEAD_LETTERS, "{record}")
        self.round_duration = _duration(meter, ROUND_DURATION)
        self.hand_over_duration = _duration(meter, HAND_OVER_DURATION)
        self.commit_duration = _duration(meter, COMMIT_DURATION)
        self.heartbeat_duration = _duration(meter, HEARTBEAT_DURATION)
        for name, (unit, read) in _GAUGES.items():
            meter.create_observable_gauge(name, [self._callback(name, read)], unit)

    def _callback(
        self, name: str, read: Read
    ) -> Callable[[CallbackOptions], list[Observation]]:
        from opentelemetry.metrics import Observation

        # Clients of one process look alike: the worst lag counts, the rest adds up.
        merge = max if name == MILLIS_BEHIND_LATEST else _add

        def observe(_: CallbackOptions) -> list[Observation]:
            merged: dict[tuple[str, str], int] = {}
            for client in [state() for state in self.watched]:
                for arn, value in read(client):
                    if value is not None:
                        at = client.app, arn
                        merged[at] = merge(merged[at], value) if at in merged else value
            return [
                Observation(value, {APP: app} | stream_attributes(arn))
                for (app, arn), value in merged.items()
            ]

        return observe


@cache
def process_instruments() -> Instruments:
    """Return those of the global providers: an SDK keeps one callback per name."""
    from opentelemetry import metrics, trace

    return Instruments(metrics.get_meter("kinesumer"), trace.get_tracer("kinesumer"))


def stream_attributes(arn: str) -> Attributes:
    """Return what tells a stream from others, of one name in another account too."""
    if not arn:
        return {}
    *_, region, account, resource = arn.split(":", 5)
    return {
        STREAM_NAME: resource.removeprefix("stream/"),
        REGION: region,
        ACCOUNT: account,
    }


def _per_stream(field: str) -> Read:
    return lambda client: [(s.arn, getattr(s, field)) for s in client.streams]


_GAUGES: Mapping[str, tuple[str, Read]] = {
    MILLIS_BEHIND_LATEST: ("ms", _per_stream("millis_behind")),
    CURRENT_LEASES: ("{shard}", _per_stream("current_leases")),
    LEASES_TO_TAKE: ("{shard}", _per_stream("leases_to_take")),
    TOTAL_LEASES: ("{shard}", _per_stream("total_leases")),
    RECORDS_UNCOMMITTED: ("{record}", _per_stream("uncommitted")),
    NUM_WORKERS: ("{client}", lambda client: [("", client.num_workers)]),
    BUFFERED_BYTES: ("By", lambda client: [("", client.buffered_bytes)]),
}


def _duration(meter: Meter, name: str) -> Histogram:
    return meter.create_histogram(
        name, "s", explicit_bucket_boundaries_advisory=SECONDS
    )


def _add(one: int, other: int) -> int:
    return one + other
