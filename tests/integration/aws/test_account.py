"""Test looking up the caller if a proxy answers, or if the answer never ends."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.aws import account
from kinesumer.aws.account import read_caller, read_limits
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import SourceUnavailableError
from tests.integration.aws.stub import AwsStub

pytestmark = pytest.mark.pinned


async def test_a_page_of_a_proxy_is_no_answer(
    aws: AwsStub, clients: ClientFactory
) -> None:
    for operation in ("GetCallerIdentity", "DescribeLimits"):
        aws.answer_raw(operation, b"<html><body>Log in</body></html>", 200)
    with pytest.raises(SourceUnavailableError, match="GetCallerIdentity isn't from"):
        await read_caller(clients)
    with pytest.raises(SourceUnavailableError, match="DescribeLimits isn't from"):
        await read_limits(clients)


async def test_an_answer_that_never_ends_is_given_up(
    aws: AwsStub, clients: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "ANSWER_SECONDS", 0.2)
    aws.drip("GetCallerIdentity")
    with pytest.raises(SourceUnavailableError, match="sts:GetCallerIdentity"):
        async with asyncio.timeout(4.0):
            await read_caller(clients)
