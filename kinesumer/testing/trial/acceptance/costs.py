"""Compute the resources of a run, its highest cost, and its IAM policy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kinesumer.testing.trial.acceptance.account import PREFIX

# AWS's list prices of US East (N. Virginia) in US dollars, without taxes and free tier,
# as of 2025-11: https://aws.amazon.com/kinesis/data-streams/pricing/ (provisioned) and
# https://aws.amazon.com/dynamodb/pricing/on-demand/.
SHARD_HOUR = 0.015  # the same for a shard of a stream consumer
# More units than the checks use, and the price of each.
UNITS = {
    "records put, each of up to 25 KB": (100_000, 0.014 / 1e6),
    "writes of the table": (60_000, 0.625 / 1e6),
    "reads of the table": (120_000, 0.125 / 1e6),
}
PRICES = (
    "list prices of us-east-1 as of 2025-11; other regions cost up to twice as much"
)


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
        cost = hours * (self.shards + self.consumer_shards) * SHARD_HOUR
        cost += sum(units * price for units, price in UNITS.values())
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


TABLE_ACTIONS = (
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeTable",
    "GetItem",
    "ListTagsOfResource",
    "PutItem",
    "Query",
    "TagResource",
    "UpdateItem",
)
STREAM_ACTIONS = (
    "AddTagsToStream",
    "CreateStream",
    "DeleteStream",
    "DescribeStreamSummary",
    "GetRecords",
    "GetShardIterator",
    "ListShards",
    "ListTagsForStream",
    "MergeShards",
    "PutRecord",
    "PutRecords",
    "SplitShard",
)
CONSUMER_ACTIONS = (
    "DeregisterStreamConsumer",
    "DescribeStreamConsumer",
    "ListStreamConsumers",
    "RegisterStreamConsumer",
    "SubscribeToShard",
)


def policy(*, fan_out: bool, role_arn: str | None) -> dict[str, Any]:
    """Return the policy of a run with these options.

    The role of another account needs the statements ``Streams`` and ``Lists``.
    """
    streams = f"arn:*:kinesis:*:*:stream/{PREFIX}-*"  # in any partition
    statements = [
        _allow(
            "Table", "dynamodb", TABLE_ACTIONS, f"arn:*:dynamodb:*:*:table/{PREFIX}-*"
        ),
        _allow("Streams", "kinesis", STREAM_ACTIONS, streams),
        {
            "Sid": "Lists",
            "Effect": "Allow",
            "Action": ["dynamodb:ListTables", "kinesis:ListStreams"],
            "Resource": "*",
        },
    ]
    if fan_out:
        statements.append(_allow("Consumers", "kinesis", CONSUMER_ACTIONS, streams))
    if role_arn is not None:
        statements.append(_allow("Role", "sts", ("AssumeRole",), role_arn))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(
    sid: str, service: str, actions: tuple[str, ...], resource: str
) -> dict[str, Any]:
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{action}" for action in actions],
        "Resource": resource,
    }
