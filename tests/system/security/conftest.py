"""An embedded AWS with streams of two accounts, and policies in force."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kinesumer import AccessDeniedError, Config, Kinesumer, Start, Stream
from kinesumer.config import STATE_STORE
from kinesumer.testing import UNTHROTTLED, EmbeddedAws, background
from tests.support.cli import environment, run  # noqa: F401  fixtures
from tests.support.lease_table import LEASES
from tests.system.security.documents import Grant, document, filled, without

OTHER = "210987654321"
ELSEWHERE = "eu-west-1"
EXTERNAL_ID = "agreed-between-two-accounts"
KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
READING = "consumer", "reader-role"
WRITING = "producer", "writer-role"
QUICK = Config(
    heartbeat_interval_seconds=0.2,
    lease_duration_seconds=5.0,  # busy machines may stall for a second
    leader_interval_seconds=0.2,
    rebalance_delay_seconds=0.1,
    listing_interval_seconds=0.5,
    commit_interval_seconds=0.2,
)


@dataclass
class Accounts:
    """Two streams of one account, a stream of another one, and the state store."""

    aws: EmbeddedAws
    app: str = "app"

    def __post_init__(self) -> None:
        aws = self.aws
        self.count = 0  # the number of records put
        self.orders = aws.create_stream("orders", 2)
        self.clicks = aws.create_stream("clicks")
        self.payments = aws.create_stream("payments", account=OTHER)
        self.role = aws.create_role(
            "partner", account=OTHER, external_id=EXTERNAL_ID
        ).arn

    @property
    def account(self) -> str:
        """The account of the app."""
        return self.aws.account().account

    @property
    def streams(self) -> list[str | Stream]:
        """The streams that are consumed."""
        theirs = Stream(self.payments, role_arn=self.role, external_id=EXTERNAL_ID)
        return ["orders", self.clicks, theirs]

    def put(self, count: int) -> None:
        """Put records into all streams, in all their shards."""
        for name in ("orders", "clicks", self.payments):
            for _ in range(count):
                self.count += 1
                self.aws.put(name, b"%d" % self.count, f"key-{self.count}")

    async def consume_once(self, *streams: str) -> None:
        """Let a client read a record of the given streams (or of all), and leave."""
        self.put(1)
        async with Kinesumer(self.app, table=STATE_STORE, config=QUICK) as client:
            chosen = streams or self.streams
            async for _ in client.consume(chosen, start=Start.TRIM_HORIZON):
                break

    def bury(self, client_id: str, *, dead: bool = True) -> None:
        """Write the row of a client that died long ago, or that seems to be alive."""
        row = {
            "pk": {"S": f"member#{self.app}"},
            "sk": {"S": client_id},
            "session": {"S": "a session that is over"},
            "incarnation": {"N": "0"},
            "beat": {"N": "7"},
            "lease_ms": {"N": "500"},
            "dead": {"BOOL": dead},
            "last_update": {"S": "2026-01-01T00:00:00.000Z"},
        }
        self.store(row)

    def store(self, row: dict[str, Any]) -> None:
        """Write a row in DynamoDB's JSON to the state store."""
        request = {"TableName": STATE_STORE, "Item": row}
        self.aws.dynamodb("PutItem", json.dumps(request).encode())

    def enforce(self, *policies: str, removed: Grant | None = None) -> None:
        """Allow callers only what these policies grant, minus one removed grant.

        Policies of roles apply to assumed roles, and other policies to users. The
        doctor's policy applies to both.
        """
        self.aws.allow()
        for name in policies:
            policy = document(name)
            if removed is not None and removed.policy == name:
                policy = without(policy, removed)
            caller = "*:assumed-role/*" if name.endswith("-role") else "*:user/*"
            self.aws.restrict(filled(policy, self._names(name)), caller)
            if name == "operator":
                names = self._names("of a -role")
                self.aws.restrict(filled(policy, names), "*:assumed-role/*")

    def _names(self, policy: str) -> dict[str, str]:
        own = f"arn:aws:kinesis:us-east-1:{self.account}:stream/*"
        stream = self.payments if policy.endswith("-role") else own
        tables = f"arn:aws:dynamodb:us-east-1:{self.account}:table"
        return {
            # The command ``init`` creates tables of other names.
            "TABLE_ARN": f"{tables}/{'*' if policy == 'init' else STATE_STORE}",
            "LEASE_TABLE_ARN": f"{tables}/{LEASES}",
            "SOURCE_TABLE_ARN": f"{tables}/customers",
            "TABLE_STREAM_ARN": f"{tables}/customers/stream/*",
            "APP": self.app,
            "STREAM_ARN": stream,
            "KEY_ARN": f"arn:aws:kms:*:{stream.split(':')[4]}:key/{KEY}",
            "STREAM_CONSUMER_ARN": f"{stream}/consumer/*",
            "READER_ROLE_ARN": self.role,
            "WRITER_ROLE_ARN": self.role,
            "LETTERS_QUEUE_ARN": f"arn:aws:sqs:us-east-1:{self.account}:letters",
            "LETTERS_BUCKET_ARN": "arn:aws:s3:::letters",
            "LETTERS_OBJECTS_ARN": "arn:aws:s3:::letters/*",
            # This stream is in another region, so that the grants for streams don't
            # cover it.
            "LETTERS_STREAM_ARN": f"arn:aws:kinesis:{ELSEWHERE}:*:stream/letters",
        }

    def named(self, removed: Grant, error: AccessDeniedError) -> bool:
        """Return whether an error names the denied action and its resource."""
        resources = {self.role}
        if removed.action.startswith("dynamodb:"):
            _, is_index, index = removed.resource.partition("/index/")
            table = f"table {STATE_STORE}"
            resources = {f"{table}, index {index}" if is_index else table}
        elif removed.policy.endswith("-role"):
            resources = {self.payments}
        elif removed.action.startswith("kinesis:"):
            resources = {"orders", self.orders, self.clicks}
        return (
            error.action == removed.action
            and error.resource in resources
            and f"{error.action} on {error.resource}" in str(error)
        )

    def calls(self) -> tuple[set[str], set[str]]:
        """Return the actions that were called, and those that were denied."""
        counts = self.aws.journal.counts()
        named = [(f"{each.service}:{each.operation}", each.error) for each in counts]
        return (
            {action for action, _ in named},
            {action for action, error in named if "AccessDenied" in (error or "")},
        )


@pytest.fixture
def accounts(
    environment: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Accounts]:
    """Two accounts, without enforced policies or limits of calls per second."""
    with background(EmbeddedAws(limits=UNTHROTTLED)) as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_table()
        yield Accounts(aws)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete rows of dead members at once, and don't delay a group's first plan."""
    for name in ("PRUNE_SECONDS", "DEAD_ROW_SECONDS", "MAX_REQUEST_DELAY_SECONDS"):
        monkeypatch.setattr(f"kinesumer.coordination.membership.{name}", 0.0)
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)


def close_connections_of_spark() -> None:
    """Close the connections of sources and sinks that this process retains."""
    from kinesumer.spark import task_reader
    from kinesumer.spark.process import run_on_loop
    from kinesumer.spark.process_cache import close_sources

    run_on_loop(close_sources())
    loop = task_reader._worker(os.getpid()).loop
    loop.run_until_complete(close_sources())
    loop.close()
    task_reader._worker.cache_clear()
