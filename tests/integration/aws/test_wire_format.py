"""Test that pages are asked for in CBOR, and that JSON is always good enough."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kinesumer.aws import kinesis
from kinesumer.aws.cbor_support import MAX_CBOR_FAILURES
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Stream
from kinesumer.wire.cbor import CONTENT_TYPE as CBOR_TYPE
from kinesumer.wire.cbor import encode

if TYPE_CHECKING:
    from kinesumer.aws.session import ClientFactory
    from tests.integration.aws.stub import AwsStub

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON_TYPE = "application/x-amz-json-1.1"
EMPTY = {"Records": [], "NextShardIterator": "next", "MillisBehindLatest": 5}


class Room:
    """A memory reservation for any answer."""

    def __init__(self, *, asks_cbor: bool = True) -> None:
        self.asks_cbor = asks_cbor

    def covers(self, size: int | None) -> bool:
        return True

    def shrink(self, size: int) -> None:
        pass

    async def grow(self, size: int | None) -> None:
        raise AssertionError


@pytest_asyncio.fixture(loop_scope="module")
async def source(aws: AwsStub, clients: ClientFactory) -> KinesisSource:
    return await open_source(clients, Stream("orders"))


def types(aws: AwsStub) -> list[str]:
    """Return the content types of the requests, and forget these."""
    found = [seen.headers["Content-Type"] for seen in aws.seen]
    aws.seen.clear()
    return found


async def test_a_reader_that_asks_for_cbor_gets_cbor(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer_raw("GetRecords", encode(EMPTY), content_type=CBOR_TYPE)
    page = await source.get_records("s iterator", 10, Room())
    assert (page.next_iterator, page.millis_behind, page.is_cbor) == ("s next", 5, True)
    assert aws.seen[0].body == {"ShardIterator": "iterator", "Limit": 10}
    assert types(aws) == [CBOR_TYPE]


async def test_all_others_get_json(aws: AwsStub, source: KinesisSource) -> None:
    aws.answer("GetRecords", EMPTY)
    await source.get_records("s iterator", 10)
    await source.get_records("s iterator", 10, Room(asks_cbor=False))
    assert types(aws) == [JSON_TYPE] * 2


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
    for _ in range(MAX_CBOR_FAILURES):
        aws.answer_raw("GetRecords", body, status)
        aws.answer("GetRecords", EMPTY)
    for _ in range(MAX_CBOR_FAILURES + 2):
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    tried = [CBOR_TYPE, JSON_TYPE] * MAX_CBOR_FAILURES
    assert types(aws) == [*tried, JSON_TYPE, JSON_TYPE]
    [line] = [r.getMessage() for r in caplog.records if "CBOR" in r.getMessage()]
    assert line.startswith("stream orders is read as JSON, because CBOR fails: ")


@pytest.mark.parametrize("way", ["drop", "cut"])
async def test_an_endpoint_that_closes_the_connection_at_cbor_is_read_as_json(
    aws: AwsStub, source: KinesisSource, way: str
) -> None:
    for _ in range(MAX_CBOR_FAILURES):
        getattr(aws, way)("GetRecords")
        aws.answer("GetRecords", EMPTY)
    for _ in range(MAX_CBOR_FAILURES + 1):
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    assert types(aws) == [*[CBOR_TYPE, JSON_TYPE] * MAX_CBOR_FAILURES, JSON_TYPE]


async def test_an_endpoint_that_closes_each_connection_is_asked_once_in_each_format(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.drop("GetRecords")
    with pytest.raises(SourceUnavailableError):
        await source.get_records("s iterator", 10, Room())
    assert types(aws) == [CBOR_TYPE, JSON_TYPE]


async def test_an_endpoint_that_is_silent_at_cbor_is_asked_for_json_the_next_time(
    aws: AwsStub, source: KinesisSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinesis, "ANSWER_SECONDS", 0.1)
    for _ in range(MAX_CBOR_FAILURES):
        aws.stall("GetRecords")
        aws.answer("GetRecords", EMPTY)
    for _ in range(MAX_CBOR_FAILURES):
        with pytest.raises(SourceUnavailableError):
            await source.get_records("s iterator", 10, Room())
        page = await source.get_records("s iterator", 10, Room())
        assert page.next_iterator == "s next"
    await source.get_records("s iterator", 10, Room())
    assert types(aws) == [*[CBOR_TYPE, JSON_TYPE] * MAX_CBOR_FAILURES, JSON_TYPE]


async def test_an_endpoint_that_is_silent_for_a_while_is_asked_for_cbor_again(
    aws: AwsStub, source: KinesisSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinesis, "ANSWER_SECONDS", 0.1)
    for _ in range(2 * MAX_CBOR_FAILURES):
        aws.stall("GetRecords")
    aws.answer_raw("GetRecords", encode(EMPTY))
    for _ in range(2 * MAX_CBOR_FAILURES):
        with pytest.raises(SourceUnavailableError):
            await source.get_records("s iterator", 10, Room())
    page = await source.get_records("s iterator", 10, Room())
    assert page.is_cbor
    assert types(aws) == [*[CBOR_TYPE, JSON_TYPE] * MAX_CBOR_FAILURES, CBOR_TYPE]


async def test_a_failure_of_cbor_now_and_then_does_not_end_it(
    aws: AwsStub, source: KinesisSource
) -> None:
    for _ in range(2 * MAX_CBOR_FAILURES):
        aws.answer_raw("GetRecords", b"", 500)
        aws.answer("GetRecords", EMPTY)
        aws.answer_raw("GetRecords", encode(EMPTY))
    for _ in range(4 * MAX_CBOR_FAILURES):
        await source.get_records("s iterator", 10, Room())
    assert types(aws) == [CBOR_TYPE, JSON_TYPE, CBOR_TYPE] * 2 * MAX_CBOR_FAILURES


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
    for _ in range(2 * MAX_CBOR_FAILURES):
        aws.reset()
        aws.answer_raw("GetRecords", b"", 500)
        aws.answer_raw("GetRecords", b'{"message":"the second"}', 500)
        with pytest.raises(SourceUnavailableError, match="the second"):
            await source.get_records("s iterator", 10, Room())
        assert types(aws) == [CBOR_TYPE, JSON_TYPE]
