"""Test that dead letters, keys and schemas need exactly the documented rights."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from botocore.session import get_session
from moto import settings
from moto.server import ThreadedMotoServer

from kinesumer import (
    AccessDeniedError,
    FatalError,
    Kinesumer,
    KinesumerError,
    Producer,
    PutFailedError,
    Record,
    RetryPolicy,
    Start,
    Stream,
)
from kinesumer.aws.session import ClientFactory
from kinesumer.config import STATE_STORE
from kinesumer.consuming import read_place
from kinesumer.core.backoff import Backoff
from kinesumer.handlers.dead_letters.letter import ReadableDeadLetters
from kinesumer.handlers.dead_letters.targets import open_readable
from kinesumer.schemas import GlueDecoder
from tests.support.cli import Run, error_text
from tests.support.glue_registry import decoded, glue_data, serve_glue_registry
from tests.support.letters import LETTER
from tests.system.security.conftest import (
    ELSEWHERE,
    EXTERNAL_ID,
    KEY,
    QUICK,
    READING,
    WRITING,
    Accounts,
)
from tests.system.security.documents import (
    Document,
    Grant,
    actions,
    document,
    filled,
    grants,
    without,
)
from tests.system.security.test_least_privilege import client as client_of

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


def become_administrator(patch: pytest.MonkeyPatch, url: str) -> None:
    """Let all clients call a server of moto, which has no policies yet."""
    patch.setenv("AWS_ENDPOINT_URL", url)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_ACCESS_KEY_ID", "administrator")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def become_user(patch: pytest.MonkeyPatch, name: str) -> Any:
    """Let later clients have the keys of a new user. Return the client of IAM."""
    iam = get_session().create_client("iam")
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    patch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
    patch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
    return iam


@pytest.fixture
def place(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    become_administrator(monkeypatch, f"http://{host}:{port}")
    monkeypatch.setattr("kinesumer.handlers.dead_letters.sqs.WAIT_SECONDS", 0)
    session = get_session()
    session.create_client("s3").create_bucket(Bucket="kept")
    queue = session.create_client("sqs").create_queue(QueueName="kept")
    iam = become_user(monkeypatch, "client")
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


@pytest.fixture
def encrypted(accounts: Accounts, impatient: None) -> Accounts:
    """Accounts whose streams are encrypted."""
    for stream in accounts.aws._state.kinesis.streams.values():
        stream.key_id = KEY
    return accounts


def enforce_without_keys(accounts: Accounts, policies: tuple[str, ...]) -> None:
    """Enforce policies without their statements about keys."""
    accounts.aws.allow()
    for name in policies:
        policy = document(name)
        statements = [s for s in policy["Statement"] if s["Resource"] != "${KEY_ARN}"]
        assert len(statements) == len(policy["Statement"]) - 1
        caller = "*:assumed-role/*" if name.endswith("-role") else "*:user/*"
        less = filled(policy | {"Statement": statements}, accounts._names(name))
        accounts.aws.restrict(less, caller)


async def test_a_client_reads_encrypted_streams_with_its_policies_only(
    encrypted: Accounts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(read_place, "REPAIR_BACKOFF", Backoff(0.1, 0.1))
    enforce_without_keys(encrypted, READING)
    encrypted.put(3)
    names = {"kms:Decrypt on arn:aws:kms:us-east-1:" + a for a in ("000", "210")}
    data: set[bytes] = set()
    async with client_of(encrypted, "one") as one:

        async def consume() -> None:
            async for record in one.consume(
                encrypted.streams, start=Start.TRIM_HORIZON
            ):
                data.add(record.data)

        task = asyncio.create_task(consume())
        async with asyncio.timeout(60):
            while not all(name in caplog.text for name in names):
                await asyncio.sleep(0.05)
        assert not data
        encrypted.enforce(*READING)
        async with asyncio.timeout(60):
            while len(data) < encrypted.count:
                await asyncio.sleep(0.05)
        await one.leave()
        await task


async def test_a_denied_put_names_the_right_that_kms_denies(
    encrypted: Accounts,
) -> None:
    theirs = Stream(
        encrypted.payments, role_arn=encrypted.role, external_id=EXTERNAL_ID
    )
    for stream in (Stream("orders"), theirs):
        enforce_without_keys(encrypted, WRITING)
        with pytest.raises(PutFailedError) as raised:
            async with Producer(stream) as producer:
                await producer.put(b"x", partition_key="k")
        cause = raised.value.__cause__
        assert isinstance(cause, AccessDeniedError)
        assert cause.action == "kms:GenerateDataKey"
        assert cause.resource.endswith(f":key/{KEY}")
        encrypted.enforce(*WRITING)
        async with Producer(stream) as producer:
            await producer.put(b"x", partition_key="k")


def test_a_viewer_sees_the_lag_of_an_encrypted_stream(
    encrypted: Accounts, run: Run
) -> None:
    asyncio.run(encrypted.consume_once("orders"))
    for is_complete in (False, True):
        encrypted.enforce("viewer", "viewer-records")
        if not is_complete:
            encrypted.aws.deny("kms:Decrypt")
        result = run("status", "--app=app", "--json")
        [stream] = json.loads(result.output)["streams"]
        problem = stream["lag_problem"]
        assert (problem is None) is is_complete
        assert is_complete or "kms:Decrypt" in problem


@contextmanager
def enforced_policies() -> Iterator[None]:
    """Let moto enforce policies for the block only. It denies the administrator too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
        yield


async def test_schemas_are_read_with_exactly_their_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve_glue_registry() as registry:
        become_administrator(monkeypatch, registry.url)
        data = glue_data(registry.register("JSON", "{}"), b"5")
        # Not "client": moto keeps the users of other tests of this process.
        iam = become_user(monkeypatch, "schema-client")
        policy = {"UserName": "schema-client", "PolicyName": "schema-registry"}
        text = json.dumps(document("schema-registry"))
        iam.put_user_policy(**policy, PolicyDocument=text)
        with enforced_policies():
            assert await decoded(GlueDecoder(), data) == 5
        iam.delete_user_policy(**policy)
        # moto denies calls of Glue in a format that SDKs don't expect, so the error
        # isn't an AccessDeniedError.
        with (
            enforced_policies(),
            pytest.raises(FatalError, match="authorized to perform: glue:GetSchema"),
        ):
            await decoded(GlueDecoder(), data)
