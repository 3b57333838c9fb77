"""Test the control path, by which other processes set faults and read the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kinesumer.testing import EmbeddedAws

Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest_asyncio.fixture(loop_scope="module")
async def ask(aws: EmbeddedAws) -> AsyncIterator[Ask]:
    """Send a control request; return status and content."""
    async with aiohttp.ClientSession() as session:

        async def send(method: str, name: str, content: Any = None) -> tuple[int, Any]:
            url = f"{aws.url}/_kinesumer/{name}"
            async with session.request(method, url, json=content) as answer:
                return answer.status, await answer.json()

        yield send


async def test_faults_are_set_listed_and_cleared(
    ask: Ask, kinesis: Any, refused: Any
) -> None:
    fault = {"kind": "throttle", "operation": "ListStreams", "seconds": 5}
    assert await ask("POST", "faults", fault) == (200, {"number": 1})
    _, listed = await ask("GET", "faults")
    assert listed["faults"]["1"]["operation"] == "ListStreams"
    assert (await refused(kinesis.list_streams())).code == "LimitExceededException"
    await ask("DELETE", "faults")
    await kinesis.list_streams()


@pytest.mark.parametrize(
    "fault", [{}, {"kind": "sabotage"}, {"kind": "throttle", "sevice": "kinesis"}]
)
async def test_a_misspelt_fault_is_refused(ask: Ask, fault: dict[str, str]) -> None:
    status, answer = await ask("POST", "faults", fault)
    assert status == 400
    assert answer["error"]


async def test_requests_are_counted_by_caller_action_and_resource(
    aws: EmbeddedAws, ask: Ask, kinesis: Any
) -> None:
    arn = aws.create_stream("orders")
    for _ in range(3):
        await kinesis.list_shards(StreamName="orders")
    _, answer = await ask("GET", "requests")
    (count,) = answer["counts"]
    assert count == {
        "service": "kinesis",
        "operation": "ListShards",
        "resource": arn,
        "caller": "arn:aws:iam::000000000000:user/kinesumer",
        "error": None,
        "requests": 3,
        "read_units": 0.0,
        "write_units": 0.0,
    }
    assert len(answer["latest"]) == 3
    assert answer["latest"][0]["status"] == 200
    await ask("DELETE", "requests")
    _, answer = await ask("GET", "requests")
    assert answer == {"counts": [], "latest": []}


async def test_accounts_roles_and_denials_are_made(
    aws: EmbeddedAws, ask: Ask, connect: Any, refused: Any
) -> None:
    _, account = await ask("POST", "accounts", {"account": "111122223333"})
    assert account["access_key_id"] == aws.account("111122223333").access_key_id
    _, role = await ask("POST", "roles", {"name": "reader", "account": "111122223333"})
    sts = await connect("sts")
    await sts.assume_role(RoleArn=role["arn"], RoleSessionName="billing")
    await ask("POST", "denials", {"action": "sts:AssumeRole"})
    call = sts.assume_role(RoleArn=role["arn"], RoleSessionName="billing")
    assert (await refused(call)).code == "AccessDenied"
    await ask("DELETE", "denials")
    await sts.assume_role(RoleArn=role["arn"], RoleSessionName="billing")
    status, answer = await ask("POST", "accounts", {"account": "12"})
    assert (status, "12 digits" in answer["error"]) == (400, True)


async def test_an_accounts_keys_are_replaced(
    aws: EmbeddedAws, ask: Ask, connect: Any, refused: Any
) -> None:
    account = "222233334444"
    old = await connect("kinesis", aws.account(account))
    await old.list_streams()
    _, keys = await ask("POST", "keys", {"account": account, "lifetime_seconds": 60})
    assert (await refused(old.list_streams())).code == "UnrecognizedClientException"
    assert keys["access_key_id"] == aws.account(account).access_key_id
    new = await connect("kinesis", aws.account(account))
    await new.list_streams()
    aws.advance(60)
    assert (await refused(new.list_streams())).code == "ExpiredTokenException"
    lasting = await connect("kinesis", aws.replace_keys(account))
    aws.advance(3600)
    await lasting.list_streams()


async def test_the_clock_goes_forward_only(ask: Ask) -> None:
    _, before = await ask("GET", "clock")
    await ask("POST", "clock", {"seconds": 60})
    _, after = await ask("GET", "clock")
    assert after["now"] - before["now"] == pytest.approx(60, abs=0.01)
    status, _ = await ask("POST", "clock", {"seconds": -1})
    assert status == 400


async def test_other_paths_are_not_there(ask: Ask) -> None:
    status, answer = await ask("GET", "nothing")
    assert status == 404
    assert "nothing" in answer["error"]
