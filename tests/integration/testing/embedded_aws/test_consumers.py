"""Test that consumers are registered, described and deregistered as in AWS."""

from __future__ import annotations

from typing import Any

from kinesumer.testing import EmbeddedAws, Limits

ELSEWHERE = "arn:aws:kinesis:us-east-1:000000000000:stream/elsewhere"


def limit(aws: EmbeddedAws, **changes: Any) -> None:
    """Change limits of the streams that are created from now on."""
    aws._state.kinesis.limits = Limits(**changes)


async def register(
    kinesis: Any, aws: EmbeddedAws, stream: str, *names: str
) -> dict[str, Any]:
    """Register consumers, one in each second. Return the last one."""
    consumer: dict[str, Any] = {}
    for name in names:
        aws.advance(1)
        answer = await kinesis.register_stream_consumer(
            StreamARN=stream, ConsumerName=name
        )
        consumer = answer["Consumer"]
    return consumer


# --- registration --------------------------------------------------------------------


async def test_a_consumer_is_in_creation_before_it_is_active(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    limit(aws, consumer_creating_seconds=5)
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    assert made["ConsumerStatus"] == "CREATING"
    call = kinesis.subscribe_to_shard(
        ConsumerARN=made["ConsumerARN"],
        ShardId="shardId-000000000000",
        StartingPosition={"Type": "LATEST"},
    )
    assert (await refused(call)).code == "ResourceInUseException"
    aws.advance(5)
    answer = await kinesis.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
    assert answer["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE"


async def test_a_stream_has_twenty_consumers_at_most(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    stream, other = aws.create_stream("orders"), aws.create_stream("payments")
    await register(kinesis, aws, stream, *(f"app-{n}" for n in range(20)))
    answer = await refused(register(kinesis, aws, stream, "one-more"))
    assert answer.code == "LimitExceededException"
    await register(kinesis, aws, other, "one-more")
    await kinesis.deregister_stream_consumer(StreamARN=stream, ConsumerName="app-7")
    await register(kinesis, aws, stream, "one-more")


async def test_a_stream_counts_its_consumers(aws: EmbeddedAws, kinesis: Any) -> None:
    stream = aws.create_stream("orders")

    async def count() -> int:
        answer = await kinesis.describe_stream_summary(StreamARN=stream)
        return int(answer["StreamDescriptionSummary"]["ConsumerCount"])

    assert await count() == 0
    await register(kinesis, aws, stream, "billing", "audit")
    assert await count() == 2
    await kinesis.deregister_stream_consumer(StreamARN=stream, ConsumerName="audit")
    assert await count() == 1
    aws.delete_stream("orders")
    aws.create_stream("orders")
    assert await count() == 0


async def test_tags_at_the_registration_need_a_right_of_their_own(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    stream = aws.create_stream("orders")
    aws.deny("kinesis:TagResource")
    call = kinesis.register_stream_consumer(
        StreamARN=stream, ConsumerName="billing", Tags={"team": "billing"}
    )
    assert (await refused(call)).code == "AccessDeniedException"
    await register(kinesis, aws, stream, "billing")


async def test_five_consumers_of_a_stream_are_created_at_a_time(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    limit(aws, consumer_creating_seconds=60)
    stream, other = aws.create_stream("orders"), aws.create_stream("payments")
    await register(kinesis, aws, stream, *"abcde")
    answer = await refused(register(kinesis, aws, stream, "f"))
    assert answer.code == "LimitExceededException"
    await register(kinesis, aws, other, "f")
    aws.advance(60)
    await register(kinesis, aws, stream, "f")


# --- looking for consumers -----------------------------------------------------------


async def test_consumers_are_listed_in_pages(aws: EmbeddedAws, kinesis: Any) -> None:
    stream, other = aws.create_stream("orders"), aws.create_stream("payments")
    await register(kinesis, aws, stream, *"cabed")
    await register(kinesis, aws, other, "x")
    pages: list[list[str]] = []
    token: dict[str, str] = {}
    while token or not pages:
        answer = await kinesis.list_stream_consumers(
            StreamARN=stream, MaxResults=2, **token
        )
        pages.append([consumer["ConsumerName"] for consumer in answer["Consumers"]])
        token = {"NextToken": answer["NextToken"]} if "NextToken" in answer else {}
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


# --- the end of a consumer -----------------------------------------------------------


async def test_a_deregistered_consumer_is_gone_after_a_while(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    limit(aws, consumer_deleting_seconds=5)
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    which = {"ConsumerARN": made["ConsumerARN"]}
    await kinesis.deregister_stream_consumer(**which)
    answer = await kinesis.describe_stream_consumer(**which)
    assert answer["ConsumerDescription"]["ConsumerStatus"] == "DELETING"
    answer = await refused(register(kinesis, aws, stream, "billing"))
    assert answer.code == "ResourceInUseException"
    aws.advance(5)
    call = kinesis.describe_stream_consumer(**which)
    assert (await refused(call)).code == "ResourceNotFoundException"
    again = await register(kinesis, aws, stream, "billing")
    assert again["ConsumerARN"] != made["ConsumerARN"]


async def test_a_stream_with_consumers_is_deleted_with_them_on_request_only(
    aws: EmbeddedAws, kinesis: Any, refused: Any
) -> None:
    stream = aws.create_stream("orders")
    made = await register(kinesis, aws, stream, "billing")
    answer = await refused(kinesis.delete_stream(StreamName="orders"))
    assert (answer.code, answer.status) == ("ResourceInUseException", 400)
    await kinesis.delete_stream(StreamName="orders", EnforceConsumerDeletion=True)
    aws.advance(1)
    assert aws.create_stream("orders") == stream
    answer = await kinesis.list_stream_consumers(StreamARN=stream)
    assert answer["Consumers"] == []
    call = kinesis.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
    assert (await refused(call)).code == "ResourceNotFoundException"


# --- permissions ---------------------------------------------------------------------
