"""Test that encrypted streams need what the policies grant on their keys."""

from __future__ import annotations

import asyncio
import json

import pytest

from kinesumer import AccessDeniedError, Producer, PutFailedError, Start, Stream
from kinesumer.consuming import read_warnings
from kinesumer.core.backoff import Backoff
from tests.integration.ops.cli.conftest import Run
from tests.system.security.conftest import EXTERNAL_ID, KEY, READING, WRITING, Accounts
from tests.system.security.documents import document, filled
from tests.system.security.test_least_privilege import client


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
    monkeypatch.setattr(read_warnings, "REPAIR_BACKOFF", Backoff(0.1, 0.1))
    enforce_without_keys(encrypted, READING)
    encrypted.put(3)
    names = {"kms:Decrypt on arn:aws:kms:us-east-1:" + a for a in ("000", "210")}
    data: set[bytes] = set()
    async with client(encrypted, "one") as one:

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
