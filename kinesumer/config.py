"""How a client behaves: one frozen object, checked when it is created."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinesumer.errors import ConfigurationError

MAX_CONNECTIONS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How a client behaves. All times are in seconds.

    Raises ConfigurationError for a value that cannot work.
    """

    heartbeat_interval_seconds: float = 2.0
    """Time between two heartbeats."""
    lease_duration_seconds: float = 8.0
    """A client whose heartbeat hasn't changed for this long is fenced. It must be at
    least three heartbeat intervals. The client itself stops delivering after three
    quarters of it."""
    leader_interval_seconds: float = 1.0
    """How often the leader reads the members' rows."""
    rebalance_delay_seconds: float = 2.0
    """Clients that join within this time of each other cause one rebalance."""
    listing_interval_seconds: float = 30.0
    """How often the leader lists the shards."""
    commit: Literal["auto", "manual"] = "auto"
    """``auto``: asking for the next record acknowledges the one before.
    ``manual``: only ``client.ack()`` acknowledges a record."""
    commit_interval_seconds: float = 5.0
    """How often positions are committed; less often if a stream has more than 4,000
    active shards."""
    max_uncommitted_records: int = 100_000
    """Maximum number of delivered records per shard without a stored position. A crash
    repeats at most these."""
    drain_timeout_seconds: float = 30.0
    """How long a release or a stop waits for user code."""
    max_processing_seconds: float = 300.0
    """Give up the client's shards if user code or a read makes no progress for this
    long. The same holds for a loop over records that was cancelled while it waited and
    was not started again."""
    buffer_bytes: int = 64 * 1024 * 1024
    """Memory for fetched records of all shards: requests under way, queued records and
    records in user code. One page (16 MiB) may come on top of it. Choose at least one
    page."""
    max_records_per_read: int = 10_000
    """Maximum number of records in one read (1 to 10,000)."""
    max_connections: int = MAX_CONNECTIONS
    """Maximum number of connections for reading, over all streams. A shard needs one
    while a request is under way. If all are in use, shards wait in order."""
    assignor: Literal["range", "sticky"] = "range"
    """How shards are assigned: in contiguous ranges, or with few moves."""
    weight: int = 1
    """This client's share of the shards, relative to the others'."""
    label: str = ""
    """The zone or cluster that the client runs in, such as ``us-east-1a``. Each label's
    clients together get their fair share of the shards. Clients without a label form a
    group of their own. At most 128 printable characters."""
    unreachable_after_seconds: float = 30.0
    """If Kinesis is unreachable for this long, other clients get the shards."""

    def __post_init__(self) -> None:
        """Check the values. Raises ConfigurationError."""
        for name in _TIMES:
            _check(name, getattr(self, name), (int, float), MOST_SECONDS)
        for name in _COUNTS:
            _check(name, getattr(self, name), (int,), MOST)
        if self.lease_duration_seconds > MOST_LEASE_SECONDS:
            raise ConfigurationError(
                f"lease_duration_seconds={self.lease_duration_seconds:g} is more than "
                f"a day: choose {MOST_LEASE_SECONDS} or less"
            )
        if self.lease_duration_seconds < 3 * self.heartbeat_interval_seconds:
            raise ConfigurationError(
                f"lease_duration_seconds={self.lease_duration_seconds:g} is less than "
                f"three heartbeats of {self.heartbeat_interval_seconds:g} s: one lost "
                "heartbeat would end a lease; raise lease_duration_seconds or lower "
                "heartbeat_interval_seconds"
            )
        if not 1 <= self.max_records_per_read <= 10_000:
            raise ConfigurationError("max_records_per_read must be from 1 to 10,000")
        _check_label(self.label)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigurationError(
                    f"{name}={getattr(self, name)!r} must be one of "
                    f"{', '.join(choices)}"
                )


MOST_SECONDS = 1e9
MOST_LEASE_SECONDS = 86_400
MOST = 10**15
MOST_LABEL = 128
_TIMES = (
    "heartbeat_interval_seconds",
    "lease_duration_seconds",
    "leader_interval_seconds",
    "rebalance_delay_seconds",
    "listing_interval_seconds",
    "commit_interval_seconds",
    "drain_timeout_seconds",
    "max_processing_seconds",
    "unreachable_after_seconds",
)
_COUNTS = (
    "max_uncommitted_records",
    "buffer_bytes",
    "max_records_per_read",
    "max_connections",
    "weight",
)
_MAY_BE_0 = ("rebalance_delay_seconds",)
_CHOICES = {"commit": ("auto", "manual"), "assignor": ("range", "sticky")}


def _check(name: str, value: object, kinds: tuple[type, ...], most: float) -> None:
    """Check the type and the range of a number. Raises ConfigurationError."""
    if type(value) not in kinds:
        kind = "a whole number" if kinds == (int,) else "a number"
        raise ConfigurationError(f"{name}={value!r} must be {kind}")
    assert isinstance(value, int | float)
    if not (0 < value <= most or (value == 0 and name in _MAY_BE_0)):
        raise ConfigurationError(
            f"{name} must be greater than 0 and at most {most:g}, not {_short(value)}"
        )


def _check_label(label: object) -> None:
    """Check that rows and reports can hold a label. Raises ConfigurationError."""
    if not isinstance(label, str) or not label.isprintable() or len(label) > MOST_LABEL:
        raise ConfigurationError(
            f"label={label!r:.200} must be text of at most {MOST_LABEL} printable "
            "characters"
        )


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) <= MOST else "beyond that"
