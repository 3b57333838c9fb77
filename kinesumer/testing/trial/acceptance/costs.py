"""Compute the resources of a run, its duration, and its highest cost."""

from __future__ import annotations

import math
from typing import NamedTuple

# AWS's list prices of US East (N. Virginia) in US dollars, without taxes and free tier,
# as of 2025-11: https://aws.amazon.com/kinesis/data-streams/pricing/ (provisioned) and
# https://aws.amazon.com/dynamodb/pricing/on-demand/.
SHARD_HOUR = 0.015
PUT_UNIT = 0.014 / 1e6  # a record, for each 25 KB
CONSUMER_SHARD_HOUR = 0.015
WRITE_UNIT = 0.625 / 1e6
READ_UNIT = 0.125 / 1e6
PRICES = (
    "list prices of us-east-1 as of 2025-11; other regions cost up to twice as much"
)

# More than the checks use, in units of the prices.
PUT_UNITS = 100_000
TABLE_WRITE_UNITS = 60_000
TABLE_READ_UNITS = 120_000


class Plan(NamedTuple):
    """The resources of a run. Each shard and consumer is billed for a started hour."""

    # All shards that exist at some time, also those that a split or merge creates.
    shards: int
    # The sum over all stream consumers of the shards of their streams.
    consumer_shards: int
    minutes: int

    @property
    def dollars(self) -> float:
        """The highest cost of the run, rounded up to cents."""
        hours = math.ceil(self.minutes / 60)
        cost = (
            hours * self.shards * SHARD_HOUR
            + hours * self.consumer_shards * CONSUMER_SHARD_HOUR
            + PUT_UNITS * PUT_UNIT
            + TABLE_WRITE_UNITS * WRITE_UNIT
            + TABLE_READ_UNITS * READ_UNIT
        )
        return math.ceil(cost * 100) / 100

    def lines(self, table: str, prefix: str, where: str) -> list[str]:
        """Return the text that the user confirms."""
        consumers = ""
        if self.consumer_shards:
            consumers = f", and stream consumers of {self.consumer_shards} shards"
        return [
            f"This creates at {where}:",
            f"  the DynamoDB table {table} (on demand)",
            f"  Kinesis streams {prefix}-… (provisioned), with at most {self.shards} "
            f"shards in total{consumers}",
            f"It takes up to {self.minutes} minutes, and costs at most "
            f"${self.dollars:.2f} ({PRICES}).",
            "Everything is removed at the end, also after Ctrl-C. If the process is "
            "killed, remove what is left with kinesumer acceptance --clean.",
        ]
