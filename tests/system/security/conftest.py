"""An embedded AWS with streams of two accounts, and policies in force."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest
from botocore.loaders import create_loader

from kinesumer import Config, Stream
from kinesumer.wire.table_definition import STATE_STORE
from tests.integration.cli.conftest import environment, run  # noqa: F401  fixtures
from tests.integration.cli.lease_table import LEASES
from tests.system.security.documents import Grant, document, filled, without

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kinesumer import AccessDeniedError
    from kinesumer.local import EmbeddedAws

OTHER = "210987654321"
ELSEWHERE = "eu-west-1"
EXTERNAL_ID = "agreed-between-two-accounts"
USER, ROLE = "*:user/*", "*:assumed-role/*"
READING = {USER: "consumer", ROLE: "reader-role"}
WRITING = {USER: "producer", ROLE: "writer-role"}
INITIALIZING = {USER: "init"}
QUICK = Config(
    heartbeat_interval_seconds=0.2,
    lease_duration_seconds=5.0,  # busy machines stand still for a second
    leader_interval_seconds=0.2,
    rebalance_delay_seconds=0.1,
    listing_interval_seconds=0.5,
    commit_interval_seconds=0.2,
)


@dataclass
class Accounts:
    """Two streams of one's own, one of another account, and the state store."""

    aws: EmbeddedAws

    def __post_init__(self) -> None:
        aws = self.aws
        self.count = 0
        """Records that were put."""
        self.orders = aws.create_stream("orders", 2)
        self.clicks = aws.create_stream("clicks")
        self.payments = aws.create_stream("payments", account=OTHER)
        self.role = aws.create_role(
            "partner", account=OTHER, external_id=EXTERNAL_ID
        ).arn

    @property
    def account(self) -> str:
        """One's own account."""
        return self.aws.account().account

    @property
    def streams(self) -> list[str | Stream]:
        """What is consumed."""
        theirs = Stream(self.payments, role_arn=self.role, external_id=EXTERNAL_ID)
        return ["orders", self.clicks, theirs]

    def put(self, count: int) -> None:
        """Put records into all streams, in all their shards."""
        for name in ("orders", "clicks", self.payments):
            for _ in range(count):
                self.count += 1
                self.aws.put(name, b"%d" % self.count, f"key-{self.count}")

    def bury(self, client_id: str, app: str = "app", *, dead: bool = True) -> None:
        """Leave the row of a client that died long ago, or seems to live."""
        row = {
            "pk": {"S": f"member#{app}"},
            "sk": {"S": client_id},
            "session": {"S": "a session that is over"},
            "incarnation": {"N": "0"},
            "beat": {"N": "7"},
            "lease_ms": {"N": "8000"},
            "dead": {"BOOL": dead},
            "last_update": {"S": "2026-01-01T00:00:00.000Z"},
        }
        request = {"TableName": STATE_STORE, "Item": row}
        self.aws.dynamodb("PutItem", json.dumps(request).encode())

    def enforce(
        self, policies: Mapping[str, str], removed: Grant | None = None
    ) -> None:
        """Allow callers only what their policies grant, but for one grant."""
        for caller, name in policies.items():
            policy = document(name)
            if removed is not None and removed.policy == name:
                policy = without(policy, removed)
            self.aws.restrict(filled(policy, self._names(name)), caller)

    def _names(self, policy: str) -> dict[str, str]:
        own = f"arn:aws:kinesis:us-east-1:{self.account}:stream/*"
        tables = f"arn:aws:dynamodb:us-east-1:{self.account}:table"
        return {
            # init makes another one than there is.
            "TABLE_ARN": f"{tables}/{'*' if policy == 'init' else STATE_STORE}",
            "LEASE_TABLE_ARN": f"{tables}/{LEASES}",
            "STREAM_ARN": self.payments if policy.endswith("-role") else own,
            "READER_ROLE_ARN": self.role,
            "WRITER_ROLE_ARN": self.role,
            "LETTERS_QUEUE_ARN": f"arn:aws:sqs:us-east-1:{self.account}:letters",
            "LETTERS_BUCKET_ARN": "arn:aws:s3:::letters",
            "LETTERS_OBJECTS_ARN": "arn:aws:s3:::letters/*",
            # In another region, so that what streams may isn't what it may.
            "LETTERS_STREAM_ARN": f"arn:aws:kinesis:{ELSEWHERE}:*:stream/letters",
        }

    def named(self, removed: Grant, error: AccessDeniedError) -> bool:
        """Tell whether an error names an action and what it was denied on."""
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


_loader = cache(create_loader)


@pytest.fixture(autouse=True)
def _services_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the services' definitions once: it takes most of a client's start."""
    monkeypatch.setattr("botocore.session.create_loader", _loader)


@pytest.fixture
def accounts(
    environment: None,  # noqa: F811
    kinesumer_aws: EmbeddedAws,
) -> Accounts:
    """Two accounts; nothing is enforced yet."""
    return Accounts(kinesumer_aws)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete rows of the dead at once; don't wait for others when a group begins."""
    for name in ("PRUNE_SECONDS", "DEAD_ROW_SECONDS", "MAX_REQUEST_DELAY_SECONDS"):
        monkeypatch.setattr(f"kinesumer.coordination.membership.{name}", 0.0)
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)


@pytest.fixture
def connections_of_spark() -> Iterator[None]:
    """Sources and sinks as in a new process; their connections are closed."""
    yield
    from kinesumer.spark.reading import task_reader
    from kinesumer.spark.runtime.event_loop import event_loop_thread
    from kinesumer.spark.runtime.sources import close_sources

    event_loop_thread().run(close_sources())
    loop = task_reader._worker(os.getpid()).loop
    loop.run_until_complete(close_sources())
    loop.close()
    task_reader._worker.cache_clear()
