"""One frozen configuration, refused at the edge if it can't work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kinesumer.errors import ConfigurationError

MAX_CONNECTIONS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How a client behaves. All times are seconds.

    Raises ConfigurationError if a value can't work.
    """

    heartbeat_interval_seconds: float = 2.0
    """Time between two heartbeats (H)."""
    lease_duration_seconds: float = 8.0
    """An unchanged heartbeat is fenced after this (L, at least 3 H); its holder stops
    delivering after three quarters of it."""
    leader_interval_seconds: float = 1.0
    """How often the leader looks at the members (P)."""
    rebalance_delay_seconds: float = 2.0
    """Joins within this time of each other make one plan."""
    listing_interval_seconds: float = 30.0
    """How often the leader lists the shards."""
    commit: Literal["auto", "manual"] = "auto"
    """``auto``: asking for the next record marks the one before as done.
    ``manual``: only ``client.ack()`` does."""
    commit_interval_seconds: float = 5.0
    """How often finished positions are stored with ``commit="auto"``; less often where
    a stream has more than 4,000 active shards."""
    max_uncommitted_records: int = 100_000
    """Delivered records per shard that may be without a stored position: the most that
    a crash can repeat."""
    drain_timeout_seconds: float = 30.0
    """How long a hand-over or a stop waits for what is in user code."""
    max_processing_seconds: float = 300.0
    """A handler, or a read that is never answered, without progress for this long loses
    the client's shards to other clients; so does a loop over records that was cancelled
    while it waited, and isn't begun again."""
    buffer_bytes: int = 64 * 1024 * 1024
    """Memory for fetched records, over all shards: answers on their way, and what waits
    or is in user code's hands. One page (16 MiB) may come on top of it. It should be no
    less than a page."""
    max_records_per_read: int = 10_000
    """Most records asked for in one read (1 to 10,000)."""
    max_connections: int = MAX_CONNECTIONS
    """Most connections for reading, over all streams. A shard needs one while a request
    is under way: if all are in use, shards take turns, first come, first served."""
    assignor: Literal["range", "sticky"] = "range"
    """How shards are shared: strictly contiguous ranges, or few moves."""
    weight: int = 1
    """This client's share of the shards, relative to the others'."""
    label: str = ""
    """The zone or cluster that the client runs in, such as ``us-east-1a``: plans give
    the clients of each label their fair share together. At most 128 characters that can
    be printed; without one, a client counts to those without."""
    unreachable_after_seconds: float = 30.0
    """Kinesis unreachable for this long: other clients are given the shards."""

    def __post_init__(self) -> None:
        """Refuse what can't work."""
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
                    f"{name}={getattr(self, name)!r} is none of {', '.join(choices)}"
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
    """Refuse what is no number, or none of use. Raises ConfigurationError."""
    if type(value) not in kinds:
        kind = "a whole number" if kinds == (int,) else "a number"
        raise ConfigurationError(f"{name}={value!r} is not {kind}")
    assert isinstance(value, int | float)
    if not (0 < value <= most or (value == 0 and name in _MAY_BE_0)):
        raise ConfigurationError(
            f"{name} must be greater than 0 and at most {most:g}, not {_short(value)}"
        )


def _check_label(label: object) -> None:
    """Refuse what can't stand in a row and a report. Raises ConfigurationError."""
    if not isinstance(label, str) or not label.isprintable() or len(label) > MOST_LABEL:
        raise ConfigurationError(
            f"label={label!r:.200} is no text of at most {MOST_LABEL} characters that "
            "can be printed"
        )


def _short(value: float) -> str:
    return f"{value:g}" if abs(value) <= MOST else "beyond that"
