"""Test that the documented policies suffice for dead letters, without excess.

moto's server enforces the policies of ``schema/iam/`` for SQS and S3, the embedded AWS
for Kinesis.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from botocore.session import get_session
from moto import settings
from moto.server import ThreadedMotoServer

from kinesumer import (
    AccessDeniedError,
    Kinesumer,
    KinesumerError,
    Record,
    RetryPolicy,
    Start,
)
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import FatalError
from kinesumer.handlers.dead_letters.letter import ReadableDeadLetters
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.wire.rows import STATE_STORE
from tests.integration.ops.cli.conftest import Run, error_text
from tests.system.security.conftest import ELSEWHERE, QUICK, Accounts
from tests.system.security.documents import (
    Document,
    Grant,
    actions,
    document,
    filled,
    grants,
    without,
)
from tests.unit.handlers.dead_letters.test_targets import LETTER

POLICIES = "dead-letters", "redrive"
FOR_MANY = {"sqs:DeleteMessage", "sqs:ChangeMessageVisibility"}
"""AWS also allows the batch versions of these actions with one grant; moto doesn't."""


def granted(service: str) -> list[Grant]:
    return [one for one in grants(*POLICIES) if one.action.startswith(service)]


# --- queues and buckets --------------------------------------------------------------


class Place(NamedTuple):
    """A server with a queue and a bucket, and the policies for them."""

    iam: Any
    queue: str
    patch: pytest.MonkeyPatch

    def allow(self, removed: Grant | None = None) -> None:
        """Enforce the documented policies, minus one removed grant."""
        self.patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", math.inf)
        for name in POLICIES:
            policy = document(name)
            if removed is not None and removed.policy == name:
                policy = without(policy, removed)
            text = json.dumps(_as_moto_asks(policy))
            self.iam.put_user_policy(
                UserName="client", PolicyName=name, PolicyDocument=text
            )
        self.patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)


def _as_moto_asks(policy: Document) -> Document:
    names = {
        "LETTERS_QUEUE_ARN": "*",  # moto ignores the queue's ARN
        "LETTERS_BUCKET_ARN": "arn:aws:s3:::kept",
        # For DeleteObjects, moto checks the bucket's ARN, but AWS checks the objects'
        # ARNs.
        "LETTERS_OBJECTS_ARN": "arn:aws:s3:::kept*",
        "LETTERS_STREAM_ARN": "*",
    }
    policy = filled(policy, names)
    for statement in policy["Statement"]:
        granted = actions(statement)
        statement["Action"] = [
            *granted,
            *(f"{a}Batch" for a in granted if a in FOR_MANY),
        ]
    policy["Statement"] = [one for one in policy["Statement"] if one["Action"]]
    return policy


@pytest.fixture
def place(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "administrator",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("kinesumer.handlers.dead_letters.sqs.WAIT_SECONDS", 0)
    session = get_session()
    session.create_client("s3").create_bucket(Bucket="kept")
    queue = session.create_client("sqs").create_queue(QueueName="kept")
    iam = session.create_client("iam")
    iam.create_user(UserName="client")
    key = iam.create_access_key(UserName="client")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    yield Place(iam, queue["QueueUrl"], monkeypatch)
    server.stop()


async def use(letters: ReadableDeadLetters) -> None:
    """Put a letter, list it, make it visible to others, and delete it."""
    await letters.put(LETTER)
    assert [one.letter async for one in letters.read()]
    await letters.aclose()
    await letters.remove([one async for one in letters.read()])


async def test_letters_are_stored_with_exactly_their_policies(place: Place) -> None:
    targets = {"sqs:": f"sqs:{place.queue}", "s3:": "s3://kept/dead"}
    async with ClientFactory() as clients:
        for service, target in targets.items():
            letters = await open_readable(target, clients)
            place.allow()
            await use(letters)
            for removed in granted(service):
                place.allow(removed)
                with pytest.raises(FatalError, match=removed.action) as raised:
                    await use(letters)
                # moto denies SQS calls in a format that SDKs don't expect, so another
                # error is raised.
                is_denied = isinstance(raised.value, AccessDeniedError)
                assert is_denied or service == "sqs:"


# --- streams -------------------------------------------------------------------------


async def bury(accounts: Accounts, target: str) -> None:
    """Let a handler fail at a record, and store the record's letter."""

    async def handle(record: Record) -> None:
        raise ValueError(record.sequence_number)

    async def leave_when_put() -> None:
        latest = accounts.aws.journal.latest
        while not any(one.operation == "PutRecords" for one in latest):
            await asyncio.sleep(0.02)
        await client.leave()

    accounts.put(1)
    accounts.aws.journal.latest.clear()
    async with (
        asyncio.timeout(30),
        Kinesumer("app", table=STATE_STORE, config=QUICK) as client,
    ):
        waiting = asyncio.create_task(leave_when_put())
        try:
            await client.run(
                "orders",
                handle,
                start=Start.TRIM_HORIZON,
                retries=RetryPolicy(max_attempts=1),
                dead_letters=target,
            )
        finally:
            waiting.cancel()


def stream(accounts: Accounts) -> str:
    return f"kinesis:{accounts.aws.create_stream('letters', region=ELSEWHERE)}"


def test_letters_of_a_stream_are_kept_and_put_back_with_their_policies(
    accounts: Accounts, impatient: None, run: Run
) -> None:
    target = stream(accounts)
    accounts.enforce("consumer", "dead-letters")
    asyncio.run(bury(accounts, target))
    accounts.enforce("redrive", "producer")
    back = run("dlq", "redrive", target, "--all", "--yes")
    assert "1 put back" in back.output
    for action in ("kinesis:PutRecords", "kinesis:DescribeStreamSummary"):
        accounts.aws.deny(action, accounts.orders)
        back = run("dlq", "redrive", target, "--all", "--yes")
        assert back.exit_code == 1
        assert f"stays: access denied: {action} on {accounts.orders}" in back.stderr
    for removed in granted("kinesis:"):
        if removed.policy == "redrive":
            accounts.enforce("redrive", removed=removed)
            listed = run("dlq", "list", target)
            assert f"{removed.action} on {target.partition(':')[2]}" in error_text(
                listed
            )


def test_a_client_names_what_it_lacks_to_keep_letters(
    accounts: Accounts, impatient: None
) -> None:
    target = stream(accounts)
    for removed in granted("kinesis:"):
        if removed.policy == "dead-letters":
            accounts.enforce("consumer", "dead-letters", removed=removed)
            with pytest.raises(KinesumerError, match=removed.action):
                asyncio.run(bury(accounts, target))
