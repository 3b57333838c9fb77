"""Test that what the system refuses is asked for again, and what is no answer."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from types import ModuleType
from unittest.mock import Mock

import pytest
from aiobotocore.session import AioSession

from kinesumer.aws import account, kinesis
from kinesumer.aws.account import read_caller, read_limits
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.http import connection
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import SourceUnavailableError, StoreUnavailableError
from kinesumer.model.rows import Key
from kinesumer.model.streams import Stream
from tests.support.aws_keys import EMPTY
from tests.support.aws_stub import AwsStub

LARGE = b'{"Records":[],"NextShardIterator":"%s"}' % (b"y" * 100_000)
KEY = Key("group#app", "group")


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_an_aws_client_that_gets_no_thread_is_only_unavailable(
    aws: AwsStub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aws.answer("GetRecords", EMPTY)
    aws.answer("GetItem", {})
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.url.replace("127.0.0.1", "localhost"))
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        store = await open_store(clients, "table")
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            for _ in range(2):
                with pytest.raises(SourceUnavailableError, match="start new thread"):
                    await source.describe()
                with pytest.raises(SourceUnavailableError, match="start new thread"):
                    await source.get_records("s iterator", 10)
                with pytest.raises(StoreUnavailableError, match="start new thread"):
                    await store.get(KEY)
        page = await source.get_records("s iterator", 10)
        assert page.next_iterator == "s y"
        assert await store.get(KEY) is None
    assert not caplog.records  # the calls are still made directly


@pytest.mark.parametrize(
    ("module", "name"), [(connection, "new_body"), (kinesis, "decode_page")]
)
async def test_a_page_for_which_there_is_no_memory_is_asked_for_again(
    aws: AwsStub,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    name: str,
) -> None:
    aws.answer_raw("GetRecords", LARGE)
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        with monkeypatch.context() as patch:
            patch.setattr(module, name, Mock(side_effect=MemoryError))
            with pytest.raises(SourceUnavailableError, match="out of memory"):
                await source.get_records("s iterator", 10)
        assert (await source.get_records("s iterator", 10)).wire_bytes == len(LARGE)
    assert not caplog.records


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()], ids=str
)
async def test_a_client_that_cannot_be_created_for_now_is_no_wrong_setting(
    aws: AwsStub, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async with ClientFactory() as clients:
        with monkeypatch.context() as patch:
            patch.setattr(AioSession, "create_client", Mock(side_effect=error))
            with pytest.raises(SourceUnavailableError, match="can't create an AWS"):
                await open_source(clients, Stream("orders"))
        await open_source(clients, Stream("orders"))


@pytest.mark.pinned
async def test_a_page_of_a_proxy_is_no_answer(
    aws: AwsStub, clients: ClientFactory
) -> None:
    for operation in ("GetCallerIdentity", "DescribeLimits"):
        aws.answer_raw(operation, b"<html><body>Log in</body></html>", 200)
    with pytest.raises(SourceUnavailableError, match="GetCallerIdentity isn't from"):
        await read_caller(clients)
    with pytest.raises(SourceUnavailableError, match="DescribeLimits isn't from"):
        await read_limits(clients)


@pytest.mark.pinned
async def test_an_answer_that_never_ends_is_given_up(
    aws: AwsStub, clients: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "ANSWER_SECONDS", 0.2)
    aws.drip("GetCallerIdentity")
    with pytest.raises(SourceUnavailableError, match="sts:GetCallerIdentity"):
        async with asyncio.timeout(4.0):
            await read_caller(clients)
