"""Test when subscriptions begin and end, with AWS's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kinesumer.testing import EmbeddedAws
from tests.support.subscriptions import Events, put

Subscribe = Callable[..., Awaitable[Events]]

SHARD = "shardId-000000000000"


# --- one subscription for each consumer and shard -------------------------------------


async def test_a_subscription_is_not_replaced_in_its_first_five_seconds(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders")
    former = await subscribe()
    await former.first(1)
    aws.advance(4.9)
    answer = await refused(subscribe())
    assert (answer.code, answer.status) == ("ResourceInUseException", 400)
    put(aws, b"a")
    assert await former.data(1) == [b"a"]


# --- the end of a subscription --------------------------------------------------------


async def test_a_subscription_ends_after_five_minutes_without_an_error(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders")
    put(aws, b"a")
    events = await subscribe()
    await events.data(1)
    aws.advance(299)
    [*_, last] = await events.first(2)
    aws.advance(1)
    await events.end()
    put(aws, b"b")
    renewed = await subscribe(
        "AFTER_SEQUENCE_NUMBER", SequenceNumber=last["ContinuationSequenceNumber"]
    )
    assert await renewed.data(1) == [b"b"]


# --- calls ----------------------------------------------------------------------------


async def test_one_call_a_second_is_permitted_for_each_consumer_and_shard(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders", 2)
    await subscribe()
    assert (await refused(subscribe())).code == "LimitExceededException"
    await subscribe(shard="shardId-000000000001")
    await subscribe(consumer="audit")
    aws.advance(1)
    assert (await refused(subscribe())).code == "ResourceInUseException"
    aws.advance(0.9)  # a refused call counts, too
    assert (await refused(subscribe())).code == "LimitExceededException"


# --- where it begins ------------------------------------------------------------------
