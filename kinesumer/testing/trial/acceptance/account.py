"""Name a run's streams, tables and roles, its highest cost, and its policy."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from kinesumer.aws.session import ClientFactory
from kinesumer.testing.trial.acceptance.resources import Resources, Streams
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables

# The names of all streams and tables of all runs begin with this.
PREFIX = "kinesumer-acceptance"
# All have this tag. Its value is the run's id.
TAG = "kinesumer:acceptance"


class RunNames(NamedTuple):
    """The names of what one run creates."""

    run_id: str

    @classmethod
    def new(cls) -> RunNames:
        """Return names that no other run uses."""
        return cls(secrets.token_hex(4))

    @property
    def prefix(self) -> str:
        """The beginning of all names of the run."""
        return f"{PREFIX}-{self.run_id}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of all that the run creates."""
        return {TAG: self.run_id}

    @property
    def table(self) -> str:
        """The name of the state store's table."""
        return f"{self.prefix}-state"


async def find_leftovers(resources: Resources) -> list[str]:
    """Return the names of what has both the prefix and the tag of runs."""
    names = await resources.names(f"{PREFIX}-")
    return [name for name in names if TAG in await resources.tags(name)]


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account, or other endpoint, that a run checks."""

    names: RunNames
    region: str
    clients: ClientFactory
    tables: StreamedTables
    streams: Streams
    other: Streams | None  # those of another account, by its role

    @property
    def is_aws(self) -> bool:
        """True if Kinesis and DynamoDB are those of AWS, not emulators."""
        return self.streams.is_aws and self.tables.is_aws

    @property
    def resources(self) -> list[Resources]:
        """The streams and tables of the account, and the streams of the other one."""
        return [self.streams, *([self.other] if self.other else []), self.tables]

    async def remove_all(self) -> list[str]:
        """Delete what the run has created. Return a sentence for each failure."""
        problems = []
        for resources in self.resources:
            for name in sorted(resources.created):
                try:
                    await resources.begin_deleting(name)
                except Exception as error:
                    problems.append(f"{resources.kind} {name} isn't removed: {error}")
        return problems


@asynccontextmanager
async def open_account(
    names: RunNames,
    region: str | None,
    role_arn: str | None,
    external_id: str | None,
) -> AsyncIterator[Account]:
    """Open the AWS clients of a run. Raise CredentialsError if there are none."""
    async with ClientFactory(region=region) as clients:
        other = None
        if role_arn is not None:
            other = await Streams.open(clients, names.tags, role_arn, external_id)
        yield Account(
            names=names,
            region=clients.region or "",
            clients=clients,
            tables=await StreamedTables.open_tagged(clients, names.tags),
            streams=await Streams.open(clients, names.tags),
            other=other,
        )


# --- the cost of a run, and its IAM policy --------------------------------------------

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
# The same for the streams of tables.
TABLE_UNITS = {"reads of tables' streams": (100_000, 0.2 / 1e6)}
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
    tables: bool = False  # whether it creates tables with streams

    @property
    def dollars(self) -> float:
        """The highest cost of the run, rounded up to cents."""
        hours = math.ceil(self.minutes / 60)
        cost = hours * (self.shards + self.consumer_shards) * SHARD_HOUR
        used = UNITS | TABLE_UNITS if self.tables else UNITS
        cost += sum(units * price for units, price in used.values())
        return math.ceil(cost * 100) / 100

    def lines(self, table: str, prefix: str, where: str) -> list[str]:
        """Return the text that the user confirms."""
        consumers = ""
        if self.consumer_shards:
            consumers = f", and stream consumers of {self.consumer_shards} shards"
        return [
            f"This creates at {where}:",
            f"  the DynamoDB table {table} (on demand)",
            *([f"  DynamoDB tables {prefix}-… with streams (on demand)"] * self.tables),
            f"  Kinesis streams {prefix}-… (provisioned), with at most {self.shards} "
            f"shards in total{consumers}",
            f"It takes up to {self.minutes} minutes, and costs at most "
            f"${self.dollars:.2f} ({PRICES}).",
            "Everything is removed at the end, also after Ctrl-C. If the process is "
            "killed, remove what is left with kinesumer acceptance --clean.",
        ]


TABLE_ACTIONS = (
    "dynamodb:CreateTable",
    "dynamodb:DeleteItem",
    "dynamodb:DeleteTable",
    "dynamodb:DescribeTable",
    "dynamodb:GetItem",
    "dynamodb:ListTagsOfResource",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:TagResource",
    "dynamodb:UpdateItem",
)
# Those of tables with streams, in addition.
STREAMED_TABLE_ACTIONS = (
    "dynamodb:BatchWriteItem",
    "dynamodb:UpdateTable",
    "dynamodb:UpdateTimeToLive",
)
TABLE_STREAM_ACTIONS = (
    "dynamodb:DescribeStream",
    "dynamodb:GetRecords",
    "dynamodb:GetShardIterator",
)
STREAM_ACTIONS = (
    "kinesis:AddTagsToStream",
    "kinesis:CreateStream",
    "kinesis:DeleteStream",
    "kinesis:DescribeStreamSummary",
    "kinesis:GetRecords",
    "kinesis:GetShardIterator",
    "kinesis:ListShards",
    "kinesis:ListTagsForStream",
    "kinesis:MergeShards",
    "kinesis:PutRecord",
    "kinesis:PutRecords",
    "kinesis:SplitShard",
)
CONSUMER_ACTIONS = (
    "kinesis:DeregisterStreamConsumer",
    "kinesis:DescribeStreamConsumer",
    "kinesis:ListStreamConsumers",
    "kinesis:RegisterStreamConsumer",
    "kinesis:SubscribeToShard",
)


def policy(
    *, fan_out: bool = False, tables: bool = False, role_arn: str | None = None
) -> dict[str, Any]:
    """Return the policy of a run with these options.

    The role of another account needs the statements ``Streams`` and ``Lists``.
    """
    streams = f"arn:*:kinesis:*:*:stream/{PREFIX}-*"  # in any partition
    table = f"arn:*:dynamodb:*:*:table/{PREFIX}-*"
    granted: list[tuple[str, tuple[str, ...], str]] = [
        ("Table", TABLE_ACTIONS, table),
        ("Streams", STREAM_ACTIONS, streams),
        ("Lists", ("dynamodb:ListTables", "kinesis:ListStreams"), "*"),
    ]
    if fan_out:
        granted.append(("Consumers", CONSUMER_ACTIONS, streams))
    if tables:
        granted.append(("StreamedTables", STREAMED_TABLE_ACTIONS, table))
        granted.append(("TableStreams", TABLE_STREAM_ACTIONS, f"{table}/stream/*"))
    if role_arn is not None:
        granted.append(("Role", ("sts:AssumeRole",), role_arn))
    statements = [
        {"Sid": sid, "Effect": "Allow", "Action": [*actions], "Resource": resource}
        for sid, actions, resource in granted
    ]
    return {"Version": "2012-10-17", "Statement": statements}
