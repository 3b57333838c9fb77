"""Test that pages are asked for in CBOR, and that JSON is always good enough."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import Any

import pytest

from kinesumer.aws import polling
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
from tests.support.aws_keys import EMPTY
from tests.support.aws_stub import AwsStub
from tests.support.cbor import needs_compiled
from tests.support.reservations import Room

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_compiled]

JSON_TYPE = "application/x-amz-json-1.1"


def formats(aws: AwsStub) -> str:
    """Return the first letters of the formats of the requests."""
    letters = {CBOR_TYPE: "C", JSON_TYPE: "J"}
    return "".join(letters[seen.headers["Content-Type"]] for seen in aws.seen)


async def test_a_read_without_a_reservation_is_in_json(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("GetRecords", EMPTY)
    await source.get_records("s iterator", 10)
    assert formats(aws) == "J"


async def test_without_the_compiled_decoder_all_pages_are_in_json(
    aws: AwsStub, clients: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "compiled", None)
    source = await open_source(clients, Stream("orders"))
    aws.answer("GetRecords", EMPTY)
    await source.get_records("s iterator", 10, ReservedForAny())
    assert formats(aws) == "J"


IN_CBOR, IN_JSON = (200, encode(EMPTY)), (200, json.dumps(EMPTY).encode())
# Answers of endpoints that don't know CBOR.
NOT_CBOR = [
    (400, b'{"__type":"SerializationException"}'),
    (500, b"<html>"),
    (415, b""),
    (400, encode({"__type": "UnknownOperationException"})),
    (200, b""),
    (200, b"\xbf"),
    (200, encode({})),
    (200, b"null"),
]
UNKNOWN_PAGE = (200, encode({"Records": [{"SequenceNumber": "1"}]}))
# Errors that say nothing about the format.
ERRORS: dict[str, type[Exception]] = {
    "ExpiredIteratorException": ExpiredIteratorError,
    "ProvisionedThroughputExceededException": ShardThrottledError,
}


@pytest.mark.parametrize(
    ("answers", "results", "asked"),
    [
        pytest.param([IN_CBOR], [True] * 2, "CC", id="CBOR"),
        # AWS may answer JSON to a question in CBOR.
        pytest.param([IN_JSON], [False] * 5, "CCCCC", id="JSON"),
        *(([answer, IN_JSON], [False] * 3, "CJJJ") for answer in NOT_CBOR),
        *(([way, IN_JSON], [False] * 2, "CJJ") for way in ("drop", "cut", "stall")),
        pytest.param(
            ["drop", "drop", "cut", "cut", IN_CBOR],
            [SourceUnavailableError, SourceUnavailableError, True],
            "CJCJC",
            id="a failure for a while says nothing about CBOR",
        ),
        pytest.param(
            [IN_CBOR, (500, b""), IN_CBOR],
            [True, SourceUnavailableError, True],
            "CCC",
            id="nor does one after an answer in CBOR",
        ),
        pytest.param(
            [IN_CBOR, UNKNOWN_PAGE, IN_JSON],
            [True, False, False],
            "CCJJ",
            id="a page that the decoder does not know ends CBOR",
        ),
        *(
            ([(400, body)], [error], "C")
            for code, error in ERRORS.items()
            for body in (encode({"__type": code}), f'{{"__type":"{code}"}}'.encode())
        ),
    ],
)
async def test_pages_are_asked_for_in_cbor_and_then_in_json_if_that_fails(
    aws: AwsStub,
    source: KinesisSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answers: list[Any],
    results: list[Any],
    asked: str,
) -> None:
    """A result is an error, or whether the page came in CBOR."""
    if answers[0] in ("drop", "cut", "stall"):
        monkeypatch.setattr(polling, "ANSWER_SECONDS", 0.5)
    caplog.set_level(logging.INFO, "kinesumer")
    for answer in answers:
        if isinstance(answer, str):
            getattr(aws, answer)("GetRecords")
        else:
            aws.answer_raw("GetRecords", answer[1], answer[0])
    for result in results:
        if isinstance(result, type):
            with pytest.raises(result):
                await source.get_records("s iterator", 10, ReservedForAny())
            continue
        page = await source.get_records("s iterator", 10, ReservedForAny())
        assert (page.next_iterator, page.is_cbor) == ("s y", result)
        assert page.millis_behind == 5
    assert formats(aws) == asked
    assert aws.seen[0].body == {"ShardIterator": "iterator", "Limit": 10}
    told = [r.getMessage() for r in caplog.records if "CBOR" in r.getMessage()]
    assert len(told) == asked.endswith("J")
    for line in told:
        assert line.startswith("stream orders is read as JSON, because CBOR fails: ")


async def test_a_stream_whose_shards_all_fail_in_cbor_is_reported_once(
    aws: AwsStub, source: KinesisSource, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesumer")
    for _ in range(2):
        aws.answer_raw("GetRecords", b"", 415)
    aws.answer("GetRecords", EMPTY)
    reads = (source.get_records("s iterator", 10, ReservedForAny()) for _ in range(2))
    await asyncio.gather(*reads)
    assert len([r for r in caplog.records if "CBOR" in r.getMessage()]) == 1


async def test_an_error_in_both_formats_is_the_one_of_json(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer_raw("GetRecords", b"", 500)
    aws.answer_raw("GetRecords", b'{"message":"the second"}', 500)
    with pytest.raises(SourceUnavailableError, match="the second"):
        await source.get_records("s iterator", 10, ReservedForAny())
    assert formats(aws) == "CJ"


async def test_the_time_for_an_answer_stands_still_while_it_waits_for_room(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setattr(polling, "ANSWER_SECONDS", 0.3)
    environment.setitem(READ_SECONDS, "kinesis", 0.3)
    aws.answer("GetRecords", EMPTY)
    reservation = Room(wait=partial(asyncio.sleep, 0.5))
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        page = await source.get_records("x", 10, reservation)
    assert reservation.asked == [page.wire_bytes]


@pytest.mark.parametrize("seconds", ["ANSWER_SECONDS", "READ_SECONDS"])
async def test_an_answer_that_began_but_did_not_arrive_in_time_is_slow(
    aws: AwsStub, environment: pytest.MonkeyPatch, seconds: str
) -> None:
    if seconds == "ANSWER_SECONDS":
        environment.setattr(polling, seconds, 0.3)
        aws.drip("GetRecords")
    else:
        environment.setitem(READ_SECONDS, "kinesis", 0.3)
        aws.begin("GetRecords")
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        with pytest.raises(SlowAnswerError, match="kinesis:GetRecords on orders"):
            await source.get_records("x", 10, Room())


@pytest.mark.parametrize("fault", ["drop", "cut", "stall"])
async def test_a_response_that_never_began_or_broke_is_unavailability_and_not_slow(
    aws: AwsStub, environment: pytest.MonkeyPatch, fault: str
) -> None:
    environment.setitem(READ_SECONDS, "kinesis", 0.2)
    getattr(aws, fault)("GetRecords")
    message = "kinesis:GetRecords on orders"
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        for reservation in (None, Room()):
            with pytest.raises(SourceUnavailableError, match=message) as caught:
                await source.get_records("x", 10, reservation)
            assert not isinstance(caught.value, SlowAnswerError)


async def test_the_clients_own_call_waits_for_room_for_a_whole_page(
    aws: AwsStub,
) -> None:
    aws.answer("GetRecords", EMPTY)
    reservation = Room()

    def hook(**_: object) -> None:
        assert reservation.asked == [None]

    async with ClientFactory() as clients:
        opened = await clients.open("kinesis")
        opened.client.meta.events.register("before-send.kinesis.GetRecords", hook)
        source = await open_source(clients, Stream("orders"))
        await source.get_records("x", 10, reservation)
    assert reservation.asked == [None]
