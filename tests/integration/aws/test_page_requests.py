"""Test that pages are asked for in CBOR, and that JSON is always good enough."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kinesumer.aws import kinesis, polling
from kinesumer.aws.clients import READ_SECONDS
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardThrottledError,
    SlowAnswerError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Stream
from kinesumer.ports import ReservedForAny
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from kinesumer.wire.cbor import encode
from tests.integration.aws.stub import AwsStub
from tests.support.cbor import needs_compiled

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_compiled]

JSON_TYPE = "application/x-amz-json-1.1"
EMPTY = {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": 5}


class Room(ReservedForAny):
    """A memory reservation for any answer."""

    def covers(self, size: int | None) -> bool:
        return True

    def shrink(self, size: int) -> None:
        pass

    async def grow(self, size: int | None) -> None:
        raise AssertionError


def types(aws: AwsStub) -> list[str]:
    """Return the content types of the requests, and forget these."""
    found = [seen.headers["Content-Type"] for seen in aws.seen]
    aws.seen.clear()
    return found


async def test_pages_are_asked_for_in_cbor(aws: AwsStub, source: KinesisSource) -> None:
    aws.answer_raw("GetRecords", encode(EMPTY), content_type=CBOR_TYPE)
    page = await source.get_records("s iterator", 10, Room())
    assert (page.next_iterator, page.millis_behind, page.is_cbor) == ("s next", 5, True)
    assert aws.seen[0].body == {"ShardIterator": "iterator", "Limit": 10}
    assert types(aws) == [CBOR_TYPE]


async def test_a_read_without_a_reservation_is_in_json(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("GetRecords", EMPTY)
    await source.get_records("s iterator", 10)
    assert types(aws) == [JSON_TYPE]


async def test_without_the_compiled_decoder_all_pages_are_in_json(
    aws: AwsStub, clients: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "compiled", None)
    source = await open_source(clients, Stream("orders"))
    aws.answer("GetRecords", EMPTY)
    await source.get_records("s iterator", 10, Room())
    assert types(aws) == [JSON_TYPE]


async def test_aws_may_answer_json_to_a_question_in_cbor(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("GetRecords", EMPTY)
    for _ in range(5):
        page = await source.get_records("s iterator", 10, Room())
        assert (page.next_iterator, page.is_cbor) == ("s next", False)
    assert types(aws) == [CBOR_TYPE] * 5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"__type":"SerializationException"}'),
        (500, b"<html>"),
        (415, b""),
        (400, encode({"__type": "UnknownOperationException"})),
        (200, b""),
        (200, b"\xbf"),
        (200, encode({})),
        (200, b"null"),
    ],
)
async def test_an_endpoint_without_cbor_is_read_as_json(
    aws: AwsStub,
    source: KinesisSource,
    status: int,
    body: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kinesumer")
    aws.answer_raw("GetRecords", body, status)
    aws.answer("GetRecords", EMPTY)
    for _ in range(3):
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    assert types(aws) == [CBOR_TYPE, JSON_TYPE, JSON_TYPE, JSON_TYPE]
    [line] = [r.getMessage() for r in caplog.records if "CBOR" in r.getMessage()]
    assert line.startswith("stream orders is read as JSON, because CBOR fails: ")


@pytest.mark.parametrize("way", ["drop", "cut", "stall"])
async def test_an_endpoint_that_does_not_answer_cbor_is_read_as_json(
    aws: AwsStub, source: KinesisSource, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(kinesis, "ANSWER_SECONDS", 0.5)
    getattr(aws, way)("GetRecords")
    aws.answer("GetRecords", EMPTY)
    for _ in range(2):
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    assert types(aws) == [CBOR_TYPE, JSON_TYPE, JSON_TYPE]


async def test_a_stream_whose_shards_all_fail_in_cbor_is_reported_once(
    aws: AwsStub, source: KinesisSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesumer")
    for _ in range(2):
        aws.answer_raw("GetRecords", b"", 415)
    aws.answer("GetRecords", EMPTY)
    reads = (source.get_records("s iterator", 10, Room()) for _ in range(2))
    await asyncio.gather(*reads)
    assert len([r for r in caplog.records if "CBOR" in r.getMessage()]) == 1


async def test_an_endpoint_that_fails_for_a_while_is_asked_for_cbor_again(
    aws: AwsStub, source: KinesisSource
) -> None:
    for way in (aws.drop, aws.cut):
        way("GetRecords")
        way("GetRecords")
        with pytest.raises(SourceUnavailableError):
            await source.get_records("s iterator", 10, Room())
        assert types(aws) == [CBOR_TYPE, JSON_TYPE]
    aws.answer_raw("GetRecords", encode(EMPTY))
    assert (await source.get_records("s iterator", 10, Room())).is_cbor


async def test_a_failure_after_an_answer_in_cbor_says_nothing_about_cbor(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer_raw("GetRecords", encode(EMPTY))
    aws.answer_raw("GetRecords", b"", 500)
    aws.answer_raw("GetRecords", encode(EMPTY))
    await source.get_records("s iterator", 10, Room())
    with pytest.raises(SourceUnavailableError):
        await source.get_records("s iterator", 10, Room())
    assert (await source.get_records("s iterator", 10, Room())).is_cbor
    assert types(aws) == [CBOR_TYPE] * 3


async def test_a_page_that_the_decoder_does_not_know_is_read_in_json_from_then_on(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer_raw("GetRecords", encode(EMPTY))
    aws.answer_raw("GetRecords", encode({"Records": [{"SequenceNumber": "1"}]}))
    aws.answer("GetRecords", EMPTY)
    for _ in range(3):
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    assert types(aws) == [CBOR_TYPE, CBOR_TYPE, JSON_TYPE, JSON_TYPE]


async def test_an_error_that_is_not_about_cbor_is_raised_at_once(
    aws: AwsStub, source: KinesisSource
) -> None:
    for code, error in (
        ("ExpiredIteratorException", ExpiredIteratorError),
        ("ProvisionedThroughputExceededException", ShardThrottledError),
    ):
        for body in (encode({"__type": code}), f'{{"__type":"{code}"}}'.encode()):
            aws.reset()
            aws.answer_raw("GetRecords", body, 400)
            with pytest.raises(error):
                await source.get_records("s iterator", 10, Room())
            assert types(aws) == [CBOR_TYPE]


async def test_an_error_in_both_formats_is_the_one_of_json(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer_raw("GetRecords", b"", 500)
    aws.answer_raw("GetRecords", b'{"message":"the second"}', 500)
    with pytest.raises(SourceUnavailableError, match="the second"):
        await source.get_records("s iterator", 10, Room())
    assert types(aws) == [CBOR_TYPE, JSON_TYPE]


class FullRoom(ReservedForAny):
    """A memory reservation that is too small, and takes some time to grow."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[int | None] = []

    def covers(self, size: int | None) -> bool:
        return False

    def shrink(self, size: int) -> None:
        raise AssertionError

    async def grow(self, size: int | None) -> None:
        self.asked.append(size)
        await asyncio.sleep(self.seconds)


async def test_the_time_for_an_answer_stands_still_while_it_waits_for_room(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(kinesis, "ANSWER_SECONDS", 0.3)
    environment.setitem(READ_SECONDS, "kinesis", 0.3)
    aws.answer("GetRecords", EMPTY)
    reservation = FullRoom(0.5)
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        page = await source.get_records("x", 10, reservation)
    assert reservation.asked == [page.wire_bytes]


@pytest.mark.parametrize("seconds", ["ANSWER_SECONDS", "READ_SECONDS"])
async def test_an_answer_that_began_but_did_not_arrive_in_time_is_slow(
    aws: AwsStub, environment: pytest.MonkeyPatch, seconds: str
) -> None:
    if seconds == "ANSWER_SECONDS":
        environment.setattr(kinesis, seconds, 0.3)
        aws.drip("GetRecords")
    else:
        environment.setitem(READ_SECONDS, "kinesis", 0.3)
        aws.begin("GetRecords")
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        with pytest.raises(SlowAnswerError, match="kinesis:GetRecords on orders"):
            await source.get_records("x", 10, FullRoom(0))


@pytest.mark.parametrize("fault", ["drop", "cut", "stall"])
async def test_a_response_that_never_began_or_broke_is_unavailability_and_not_slow(
    aws: AwsStub, environment: pytest.MonkeyPatch, fault: str
) -> None:
    environment.setitem(READ_SECONDS, "kinesis", 0.2)
    getattr(aws, fault)("GetRecords")
    message = "kinesis:GetRecords on orders"
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        for reservation in (None, FullRoom(0)):
            with pytest.raises(SourceUnavailableError, match=message) as caught:
                await source.get_records("x", 10, reservation)
            assert not isinstance(caught.value, SlowAnswerError)


async def test_the_clients_own_call_waits_for_room_for_a_whole_page(
    aws: AwsStub,
) -> None:
    aws.answer("GetRecords", EMPTY)
    reservation = FullRoom(0)

    def hook(**_: object) -> None:
        assert reservation.asked == [None]

    async with ClientFactory() as clients:
        opened = await clients.open("kinesis")
        opened.client.meta.events.register("before-send.kinesis.GetRecords", hook)
        source = await open_source(clients, Stream("orders"))
        await source.get_records("x", 10, reservation)
    assert reservation.asked == [None]
