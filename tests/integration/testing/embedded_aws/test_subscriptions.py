"""Test when subscriptions begin and end, with AWS's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.pushed_events import DELIVERY_SECONDS, Events, put

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.testing import EmbeddedAws

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


async def test_the_five_seconds_pass_although_the_former_client_is_gone(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders")
    former = await subscribe()
    await former.stop()
    aws.advance(4)
    assert (await refused(subscribe())).code == "ResourceInUseException"
    aws.advance(1)
    await (await subscribe()).first(1)


async def test_a_refused_subscription_does_not_begin_the_five_seconds_again(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders")
    await subscribe()
    aws.advance(3)
    assert (await refused(subscribe())).code == "ResourceInUseException"
    aws.advance(2)
    await (await subscribe()).first(1)


async def test_consumers_and_shards_have_subscriptions_of_their_own(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders", 2)
    put(aws, b"a")
    aws.put("orders", b"b", explicit_hash_key=(1 << 128) - 1)
    aws.advance(DELIVERY_SECONDS)
    first = await subscribe()
    other_shard = await subscribe(shard="shardId-000000000001")
    other_consumer = await subscribe(consumer="audit")
    for events, data in ((first, b"a"), (other_shard, b"b"), (other_consumer, b"a")):
        assert await events.data(1) == [data]


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


async def test_merged_shards_name_both_parents_of_their_child(
    aws: EmbeddedAws, subscribe: Subscribe
) -> None:
    aws.create_stream("orders", 2)
    other = "shardId-000000000001"
    aws.merge("orders", SHARD, other)
    for shard in (SHARD, other):
        events = await subscribe(shard=shard)
        await events.end()
        [child] = events.received[-1]["ChildShards"]
        assert child["ShardId"] == "shardId-000000000002"
        assert set(child["ParentShards"]) == {SHARD, other}


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


async def test_expired_credentials_of_a_role_refuse_a_subscription(
    aws: EmbeddedAws, connect: Any, subscribe: Subscribe, refused: Any
) -> None:
    arn = aws.create_stream("orders")
    await subscribe()
    role = aws.create_role("reader", account="000000000000", session_seconds=900)
    sts = await connect("sts")
    answer = await sts.assume_role(RoleArn=role.arn, RoleSessionName="test")
    given = answer["Credentials"]
    assumed = await connect(
        "kinesis",
        aws.account()._replace(
            access_key_id=given["AccessKeyId"],
            secret_access_key=given["SecretAccessKey"],
            session_token=given["SessionToken"],
        ),
    )
    aws.advance(3600)
    call = assumed.subscribe_to_shard(
        ConsumerARN=f"{arn}/consumer/billing:1",
        ShardId=SHARD,
        StartingPosition={"Type": "LATEST"},
    )
    assert (await refused(call)).code == "ExpiredTokenException"


# --- where it begins ------------------------------------------------------------------


async def test_a_position_that_is_incomplete_is_refused(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders")
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "AT_TIMESTAMP"):
        aws.advance(1)
        answer = await refused(subscribe(kind))
        assert (answer.code, answer.status) == ("InvalidArgumentException", 400)
    aws.advance(1)
    assert (await refused(subscribe("NEWEST"))).code == "ValidationException"


async def test_positions_of_elsewhere_and_of_the_future_are_refused(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders", 2)
    _, other = aws.put("orders", b"x", explicit_hash_key=(1 << 128) - 1)
    for place in (
        {"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": other},
        {"kind": "AT_SEQUENCE_NUMBER", "SequenceNumber": "nonsense"},
        {"kind": "AT_TIMESTAMP", "Timestamp": aws._state.clock.now() + 9},
    ):
        aws.advance(1)
        answer = await refused(subscribe(**place))
        assert answer.code == "InvalidArgumentException"


async def test_a_refused_position_ends_no_subscription(
    aws: EmbeddedAws, subscribe: Subscribe, refused: Any
) -> None:
    aws.create_stream("orders")
    events = await subscribe()
    aws.advance(5)
    answer = await refused(subscribe("AT_SEQUENCE_NUMBER", SequenceNumber="nonsense"))
    assert answer.code == "InvalidArgumentException"
    put(aws, b"a")
    assert await events.data(1) == [b"a"]
