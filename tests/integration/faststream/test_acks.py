"""Test what becomes of a record by what its handler does, and by the policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import (
    AckMessage,
    NackMessage,
    RejectMessage,
    SetupError,
    SkipMessage,
)

from kinesumer import HandlerFailedError, RetryPolicy
from kinesumer.dead_letters import DeadLetter
from kinesumer.faststream import KinesisBroker, KinesisMessage, KinesisRouter
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.support.faststream_cases import OLDEST
from tests.support.producers import QUICK

TWICE = RetryPolicy(max_attempts=2, initial_delay_seconds=0.01)
# What handlers do, by the body that they get.
RAISES = {
    "fails": ZeroDivisionError,
    "acks by an error": AckMessage,
    "nacks by an error": NackMessage,
    "rejects by an error": RejectMessage,
    "skips": SkipMessage,
}


async def act(body: str, message: Any) -> None:
    """Do what a body says, and end."""
    if body in ("acks", "acks and fails"):
        await message.ack()
    elif body == "nacks":
        await message.nack()
    elif body == "rejects":
        await message.reject()
    elif body in RAISES:
        raise RAISES[body]
    if body == "acks and fails":
        raise ZeroDivisionError


class Letters:
    def __init__(self) -> None:
        self.found: list[DeadLetter] = []

    async def put(self, letter: DeadLetter) -> None:
        self.found.append(letter)


async def outcomes(
    aws: EmbeddedAws, bodies: list[str], **options: Any
) -> tuple[dict[str, int], dict[str, tuple[int, str]]]:
    """Handle records, and then one that ends the test.

    Return the calls with each record, and the attempts and errors of the dead letters.
    """
    aws.create_stream("orders", shards=1)
    for body in (*bodies, "end"):
        aws.put("orders", body.encode(), "key")
    calls: dict[str, int] = {}
    letters, ended = Letters(), asyncio.Event()
    broker = KinesisBroker("billing", config=QUICK, logger=None)
    options = {
        "dead_letters": letters.put,
        "retries": TWICE,
        "start": OLDEST,
        **options,
    }

    @broker.subscriber("orders", **options)
    async def on_order(body: str, message: KinesisMessage) -> None:
        if body == "end":
            ended.set()
            await message.ack()
            return
        calls[body] = calls.get(body, 0) + 1
        await act(body, message)

    async with broker:
        await broker.start()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
    found = {each.data.decode(): (each.attempts, each.error) for each in letters.found}
    return calls, {
        body: (n, text.partition(":")[0]) for body, (n, text) in found.items()
    }


async def test_by_default_a_record_whose_handler_fails_becomes_a_dead_letter(
    kinesumer_aws: EmbeddedAws, nobody_else_joins: None
) -> None:
    bodies = [*RAISES, "returns", "acks", "nacks", "rejects", "acks and fails"]
    calls, letters = await outcomes(kinesumer_aws, bodies)
    assert letters == {
        "fails": (2, "ZeroDivisionError"),
        "nacks": (2, "NotAckedError"),
        "nacks by an error": (2, "NotAckedError"),
        # A rejected message is not tried again.
        "rejects": (1, "RejectedError"),
        "rejects by an error": (1, "RejectedError"),
    }
    twice = {"fails", "nacks", "nacks by an error"}
    assert calls == {body: 2 if body in twice else 1 for body in bodies}


@pytest.mark.parametrize(
    ("policy", "letters"),
    [
        (AckPolicy.ACK, {}),
        (AckPolicy.REJECT_ON_ERROR, {"fails": (1, "RejectedError")}),
        (
            AckPolicy.MANUAL,
            # What is not acknowledged is not done.
            {
                "fails": (2, "ZeroDivisionError"),
                "returns": (2, "NotAckedError"),
                "skips": (2, "SkipMessage"),
            },
        ),
    ],
)
async def test_a_policy_decides_what_the_handler_leaves_open(
    kinesumer_aws: EmbeddedAws,
    nobody_else_joins: None,
    policy: AckPolicy,
    letters: dict[str, tuple[int, str]],
) -> None:
    bodies = ["fails", "returns", "acks", "acks and fails", "skips"]
    calls, found = await outcomes(kinesumer_aws, bodies, ack_policy=policy)
    assert found == letters
    assert calls == {body: letters.get(body, (1,))[0] for body in bodies}


async def test_without_a_target_a_rejected_message_is_done(
    kinesumer_aws: EmbeddedAws, nobody_else_joins: None
) -> None:
    bodies = ["rejects", "rejects by an error"]
    calls, _ = await outcomes(kinesumer_aws, bodies, dead_letters=None)
    assert calls == dict.fromkeys(bodies, 1)


async def test_without_a_target_a_failure_ends_the_broker_before_the_record(
    kinesumer_aws: EmbeddedAws, nobody_else_joins: None
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    kinesumer_aws.put("orders", b"fails", "key")
    broker = KinesisBroker("billing", config=QUICK, logger=None)
    seen, fail = asyncio.Queue[str](), True

    @broker.subscriber("orders", retries=TWICE, start=OLDEST)
    async def on_order(body: str) -> None:
        seen.put_nowait(body)
        if fail:
            raise ZeroDivisionError

    await broker.start()
    while await broker.ping():
        await asyncio.sleep(0.05)
    with pytest.raises(ExceptionGroup) as group:
        await broker.stop()
    assert isinstance(group.value.exceptions[0], HandlerFailedError)
    assert seen.qsize() == 2
    fail = False
    async with broker:
        await broker.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [await seen.get() for _ in range(3)] == ["fails"] * 3


async def test_a_failed_batch_is_parted_until_its_record_is_found(
    kinesumer_aws: EmbeddedAws, nobody_else_joins: None
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    names = ["ann", "bob", "cid", "bad", "dan"]
    for name in names:
        kinesumer_aws.put("orders", name.encode(), "key")
    handled, letters, ended = [], Letters(), asyncio.Event()
    broker = KinesisBroker("billing", config=QUICK, logger=None)
    options: Any = {"dead_letters": letters.put, "retries": TWICE, "start": OLDEST}

    @broker.subscriber("orders", batch=True, **options)
    async def on_orders(bodies: list[str]) -> None:
        if "bad" in bodies:
            raise ZeroDivisionError
        handled.extend(bodies)
        if "dan" in bodies:
            ended.set()

    async with broker:
        await broker.start()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
    assert handled == ["ann", "bob", "cid", "dan"]
    assert [letter.data for letter in letters.found] == [b"bad"]


def test_a_record_cannot_be_done_before_its_handler_ends() -> None:
    broker = KinesisBroker("billing", ack_policy=AckPolicy.ACK_FIRST)
    with pytest.raises(SetupError, match=r"use AckPolicy\.ACK"):
        broker.subscriber("orders")
    with pytest.raises(SetupError, match=r"use AckPolicy\.ACK"):
        KinesisRouter().subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)
    broker.subscriber("orders", ack_policy=AckPolicy.ACK)
