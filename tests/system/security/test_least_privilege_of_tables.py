"""Test that a table's stream needs exactly the documented rights."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import boto3
import pytest

from kinesumer import AccessDeniedError, Kinesumer, Record, Start, Stream
from kinesumer.config import STATE_STORE
from tests.support.cli import Run, error_text
from tests.system.security.conftest import QUICK, Accounts
from tests.system.security.documents import Grant, grants

POLICIES = "consumer", "table-streams"
GRANTS = grants("table-streams")


@pytest.fixture
def customers(accounts: Accounts, monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """Return the accounts, with a table that has a stream and an item."""
    dynamodb: Any = boto3.client(
        "dynamodb", endpoint_url=os.environ["AWS_ENDPOINT_URL"]
    )
    dynamodb.create_table(
        TableName="customers",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
    )
    dynamodb.put_item(TableName="customers", Item={"id": {"S": "a"}})
    return accounts


async def read_one() -> Record:
    """Return the first change."""
    async with (
        asyncio.timeout(60),
        Kinesumer("app", table=STATE_STORE, config=QUICK) as client,
    ):
        stream = Stream(table="customers")
        async for record in client.consume([stream], start=Start.TRIM_HORIZON):
            return record
    raise AssertionError("the stream has ended")


async def test_the_documented_policies_suffice(customers: Accounts) -> None:
    customers.enforce(*POLICIES)
    assert (await read_one()).change.keys == {"id": "a"}


@pytest.mark.parametrize("removed", GRANTS, ids=lambda grant: grant.action)
async def test_the_error_names_the_action_that_is_missing(
    customers: Accounts, removed: Grant
) -> None:
    customers.enforce(*POLICIES, removed=removed)
    with pytest.raises(AccessDeniedError, match=removed.action):
        await read_one()


@pytest.mark.parametrize("removed", GRANTS, ids=lambda grant: grant.action)
async def test_the_doctor_names_the_action_that_is_missing(
    customers: Accounts, removed: Grant, run: Run
) -> None:
    customers.enforce(*POLICIES, "operator", removed=removed)
    result = await asyncio.to_thread(run, "doctor", "table/customers")
    assert f"CRITICAL  permissions: {removed.action}" in result.output, error_text(
        result
    )
