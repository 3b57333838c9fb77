"""Limits: what Kinesis refuses as too fast or too large."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB, MIB = 1 << 10, 1 << 20
CONTROL_CALLS_PER_SECOND: Mapping[str, float] = MappingProxyType(
    {
        "CreateStream": 5,
        "DecreaseStreamRetentionPeriod": 5,
        "DeleteStream": 5,
        "DescribeLimits": 1,
        "DescribeStream": 10,
        "DescribeStreamSummary": 20,
        "IncreaseStreamRetentionPeriod": 5,
        "ListStreams": 5,
        "MergeShards": 5,
        "SplitShard": 5,
        "UpdateMaxRecordSize": 5,
        "UpdateShardCount": 10,
        "UpdateStreamMode": 5,
    }
)
"""Calls per second, account and region."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """AWS's limits. A test can change each of them."""

    read_calls_per_second: float = 5
    read_bytes_per_second: float = 2 * MIB
    iterator_calls_per_second: float = 5
    listing_calls_per_second: float = 1000
    write_records_per_second: float = 1000
    write_bytes_per_second: float = 1 * MIB
    control_calls_per_second: Mapping[str, float] = field(
        default_factory=lambda: CONTROL_CALLS_PER_SECOND
    )
    page_records: int = 10_000
    page_bytes: int = 10 * MIB
    request_records: int = 500
    request_bytes: int = 10 * MIB
    iterator_seconds: float = 300
    token_seconds: float = 300
    shards_per_account: int = 10_000
    creating_seconds: float = 0
    updating_seconds: float = 0
    deleting_seconds: float = 0
    """How long a stream stays in a state on its way to the next one."""


UNTHROTTLED = Limits(
    read_calls_per_second=math.inf,
    read_bytes_per_second=math.inf,
    iterator_calls_per_second=math.inf,
    listing_calls_per_second=math.inf,
    write_records_per_second=math.inf,
    write_bytes_per_second=math.inf,
    control_calls_per_second=MappingProxyType({}),
)
"""No rate is limited, for measurements; sizes and lifetimes still are."""


class Bucket:
    """A token bucket that holds what flows in within one second."""

    __slots__ = ("at", "balance", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = self.balance = rate
        self.at = -math.inf

    def take(self, amount: float, now: float) -> bool:
        """Take an amount if it is there; more than a second's worth from a full one."""
        if not self.holds(amount, now):
            return False
        self.spend(amount)
        return True

    def holds(self, amount: float, now: float) -> bool:
        """Return whether an amount is there (any at all for amount 0)."""
        if self.rate == math.inf:
            return True
        if now > self.at:
            gained = (now - self.at) * self.rate
            self.balance = min(self.rate, self.balance + gained)
            self.at = now
        return self.balance > 0 and self.balance + 1e-6 >= min(amount, self.rate)

    def spend(self, amount: float) -> None:
        """Take an amount, into debt if need be.

        Who overdraws loses what was saved up: a page of 10 MB at 2 MB/s closes the
        shard for five seconds, as AWS documents it.
        """
        if amount > self.balance:
            self.balance = min(self.balance, 0.0)
        self.balance -= amount
