"""Limit rates, sizes and lifetimes as Kinesis does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MIB = 1 << 20
# The tolerance for times and amounts, which are inexact sums of floats, and the minimum
# delay of a timer in virtual time.
TICK = 1e-6
# How often each account may call an operation in each region.
CONTROL_CALLS_PER_SECOND: Mapping[str, float] = MappingProxyType(
    {
        "AddTagsToStream": 5,
        "CreateStream": 5,
        "DecreaseStreamRetentionPeriod": 5,
        "DeleteStream": 5,
        "DeregisterStreamConsumer": 5,
        "DescribeAccountSettings": 5,
        "DescribeLimits": 1,
        "DescribeStream": 10,
        "DescribeStreamConsumer": 20,
        "DescribeStreamSummary": 20,
        "IncreaseStreamRetentionPeriod": 5,
        "ListStreamConsumers": 5,
        "ListStreams": 5,
        "ListTagsForResource": 5,
        "ListTagsForStream": 5,
        "MergeShards": 5,
        "RegisterStreamConsumer": 5,
        "SplitShard": 5,
        "StartStreamEncryption": 5,
        "StopStreamEncryption": 5,
        "TagResource": 5,
        "UpdateAccountSettings": 5,
        "UpdateMaxRecordSize": 5,
        "UpdateShardCount": 10,
        "UpdateStreamMode": 5,
        "UpdateStreamRecordDistributionStrategy": 5,
    }
)


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
    expiry_seconds: float = 1.0  # all shards are searched for expired records so often
    shards_per_account: int = 10_000
    on_demand_streams_per_account: int = 50  # the default quota
    on_demand_shards: int = 4  # of a new on-demand stream
    # Duration of a stream's transitional states, such as CREATING.
    creating_seconds: float = 0
    updating_seconds: float = 0
    deleting_seconds: float = 0
    # Enhanced fan-out.
    consumers_per_stream: int = 20
    advantage_consumers_per_stream: int = 50  # in the mode On-demand Advantage
    creating_consumers_per_stream: int = 5
    consumer_creating_seconds: float = 0
    consumer_deleting_seconds: float = 0
    subscribe_calls_per_second: float = 1
    # A later subscription may replace one that began at least so long ago.
    subscription_replace_seconds: float = 5
    subscription_seconds: float = 300
    pushed_bytes_per_second: float = 2 * MIB
    event_bytes: int = 1 * MIB
    delivery_seconds: float = 0.07  # from a record's arrival to its event
    idle_event_seconds: float = 5  # between the events of a shard without records


UNTHROTTLED = Limits(
    read_calls_per_second=math.inf,
    read_bytes_per_second=math.inf,
    iterator_calls_per_second=math.inf,
    listing_calls_per_second=math.inf,
    write_records_per_second=math.inf,
    write_bytes_per_second=math.inf,
    subscribe_calls_per_second=math.inf,
    pushed_bytes_per_second=math.inf,
    control_calls_per_second=MappingProxyType({}),
)
"""Limits for measurements. Rates are unlimited, but sizes and lifetimes are limited."""


class Bucket:
    """A token bucket that holds at most the tokens of one second."""

    __slots__ = ("at", "balance", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.balance = rate
        self.at: float = -math.inf

    def take(self, amount: float, now: float) -> bool:
        """Take an amount. Return False if that isn't possible.

        A full bucket permits any amount.
        """
        if not self.holds(amount, now):
            return False
        self.spend(amount)
        return True

    def holds(self, amount: float, now: float) -> bool:
        """Return whether an amount is available. Even 0 needs a positive balance."""
        if self.rate == math.inf:
            return True
        if now > self.at:
            gained = (now - self.at) * self.rate
            self.balance = min(self.rate, self.balance + gained)
            self.at = now
        return self.balance > 0 and self.balance + TICK >= min(amount, self.rate)

    def spend(self, amount: float) -> None:
        """Take an amount, even if the balance becomes negative."""
        # AWS documents that at 2 MB/s, a page of 10 MB blocks a shard's reads for 5 s.
        # So the tokens that are left in the bucket must not shorten this time.
        if amount > self.balance:
            self.balance = min(self.balance, 0.0)
        self.balance -= amount
