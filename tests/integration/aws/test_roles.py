"""Test that clients share a role, which is assumed again before its keys expire."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory, role_session_name
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    SourceUnavailableError,
)
from kinesumer.model.streams import Stream
from kinesumer.testing import EmbeddedAws
from tests.support.aws_keys import EMPTY, ROLE, SUMMARY, Seconds
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned


@pytest_asyncio.fixture(loop_scope="module")
async def clients(aws: AwsStub) -> AsyncIterator[ClientFactory]:
    """Open clients that haven't assumed a role yet."""
    async with ClientFactory(role_session_name="kinesumer-billing/pod 1") as clients:
        yield clients


async def test_a_role_is_assumed_once_for_all_its_streams_and_regions(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.assume_role(3600)
    aws.answer("DescribeStreamSummary", SUMMARY)
    streams = [
        Stream("a", role_arn=ROLE, external_id="xx"),
        Stream("b", role_arn=ROLE, external_id="xx"),
        Stream("a", role_arn=ROLE, external_id="xx", region="us-east-1"),
    ]
    sources = [await open_source(clients, stream) for stream in streams]
    await asyncio.gather(*(source.describe() for source in sources))
    assert aws.keys("DescribeStreamSummary") == ["ROLE1"] * 3
    [assumed] = [seen for seen in aws.seen if seen.operation == "AssumeRole"]
    assert assumed.access_key == "OWN"
    assert assumed.body["RoleArn"] == ROLE
    assert assumed.body["ExternalId"] == "xx"
    assert assumed.body["RoleSessionName"] == "kinesumer-billing-pod-1"


async def test_another_external_id_or_session_name_is_another_assumption(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.assume_role(3600)
    aws.answer("DescribeStreamSummary", SUMMARY)
    for external_id, name in (("xx", None), ("yy", None), ("yy", "audit")):
        stream = Stream("a", role_arn=ROLE, external_id=external_id, session_name=name)
        await (await open_source(clients, stream)).describe()
    assert aws.keys("DescribeStreamSummary") == ["ROLE1", "ROLE2", "ROLE3"]
    assumed = [seen for seen in aws.seen if seen.operation == "AssumeRole"]
    assert assumed[2].body["RoleSessionName"] == "audit"


@pytest.mark.parametrize("lifetime", [3.0, 900.0, 3600.0, 43200.0])
async def test_a_role_is_assumed_again_before_its_keys_expire(
    aws: AwsStub, lifetime: float
) -> None:
    seconds = Seconds()
    aws.assume_role(lifetime)
    aws.answer("DescribeStreamSummary", SUMMARY)
    async with ClientFactory(now=seconds) as clients:
        source = await open_source(clients, Stream("a", role_arn=ROLE))
        await source.describe()
        seconds.now += lifetime * 0.45
        await source.describe()
        assert aws.count("AssumeRole") == 1
        seconds.now += lifetime * 0.54
        await asyncio.gather(*(source.describe() for _ in range(5)))
        while "ROLE2" not in (keys := aws.keys("DescribeStreamSummary")):
            await source.describe()
    # No call waits for the renewal, since the old keys are still valid.
    assert keys[:7] == ["ROLE1"] * 7
    assert aws.count("AssumeRole") == 2


@pytest.mark.parametrize("of_proxy", [False, True])
async def test_a_failed_renewal_is_put_off_while_the_keys_are_valid(
    aws: AwsStub, caplog: pytest.LogCaptureFixture, of_proxy: bool
) -> None:
    seconds = Seconds()
    aws.assume_role(1000)
    if of_proxy:
        aws.answer_raw("AssumeRole", b"<html><body>Log in</body></html>", 200)
    else:
        aws.refuse_role("Throttling", "slow down", 400)
    aws.answer("DescribeStreamSummary", SUMMARY)
    async with ClientFactory(now=seconds) as clients:
        source = await open_source(clients, Stream("a", role_arn=ROLE))
        await source.describe()
        seconds.now += 600
        with caplog.at_level(logging.WARNING, "kinesumer"):
            while not caplog.records:
                await source.describe()
        assert aws.count("AssumeRole") == 2
        assert "the keys in use expire in 400 s" in caplog.text
        assert ("AssumeRole isn't from AWS" in caplog.text) is of_proxy
        await source.describe()
        assert aws.count("AssumeRole") == 2  # it is repeated after a pause


async def test_an_outage_of_sts_is_asked_about_once_for_all_who_wait(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.refuse_role("InternalFailure", "sorry", 500)
    source = await open_source(clients, Stream("a", role_arn=ROLE))
    reads = (source.describe() for _ in range(20))
    errors = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(error) for error in errors} == {SourceUnavailableError}
    assert aws.count("AssumeRole") == 1
    with pytest.raises(SourceUnavailableError):
        await source.describe()
    assert aws.count("AssumeRole") == 2


@pytest.mark.parametrize("operation", ["DescribeStreamSummary", "GetRecords"])
async def test_a_late_answer_to_older_keys_keeps_those_that_were_renewed(
    aws: AwsStub,
    clients: ClientFactory,
    operation: str,
) -> None:
    late = asyncio.Event()
    aws.assume_role(3600)
    aws.answer_raw(operation, b'{"__type":"ExpiredTokenException"}', 400, after=late)
    aws.refuse(operation, "ExpiredTokenException", "expired")
    aws.answer(operation, SUMMARY if operation.startswith("Describe") else EMPTY)
    source = await open_source(clients, Stream("a", role_arn=ROLE))

    async def call() -> None:
        if operation == "GetRecords":
            await source.get_records("x", 10)
        else:
            await source.describe()

    slow = asyncio.create_task(call())
    while not aws.count(operation):
        await asyncio.sleep(0.001)
    await call()
    late.set()
    await slow
    assert aws.keys(operation) == ["ROLE1", "ROLE1", "ROLE2", "ROLE2"]
    assert aws.count("AssumeRole") == 2


async def test_a_role_that_may_not_be_assumed_is_named(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.refuse_role(
        "AccessDenied",
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: "
        f"sts:AssumeRole on resource: {ROLE}",
    )
    source = await open_source(clients, Stream("a", role_arn=ROLE))
    with pytest.raises(AccessDeniedError) as raised:
        await source.describe()
    assert raised.value.action == "sts:AssumeRole"
    assert raised.value.resource == ROLE
    assert "user/me" in str(raised.value)


async def test_an_external_id_that_sts_cant_take_is_a_configuration_error(
    aws: AwsStub, clients: ClientFactory
) -> None:
    source = await open_source(clients, Stream("a", role_arn=ROLE, external_id="x"))
    with pytest.raises(ConfigurationError, match="ExternalId"):
        await source.describe()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("kinesumer-app/pod 1", "kinesumer-app-pod-1"),
        ("é", "--"),
        ("x" * 70, "x" * 64),
        ("a+b=c,d.e@f-g_h", "a+b=c,d.e@f-g_h"),
    ],
)
def test_a_session_name_is_made_fit_for_sts(text: str, name: str) -> None:
    assert role_session_name(text) == name


OTHER = "210987654321"


async def test_keys_of_a_role_that_live_for_two_seconds_never_interrupt_reading(
    kinesumer_aws: EmbeddedAws,
) -> None:
    embedded = kinesumer_aws
    role = embedded.create_role("reader", account=OTHER, session_seconds=2)
    embedded.create_stream("orders", account=OTHER)
    # AWS's clock is an hour ahead, so only its time gives the lifetime of the keys.
    embedded.advance(3600)
    embedded.stop_clock()
    seconds = 0.0
    async with ClientFactory(now=lambda: seconds) as clients:
        source = await open_source(clients, Stream("orders", role_arn=role.arn))
        for _ in range(30):
            await source.list_shards()
            embedded.advance(0.1)
            seconds += 0.1
    assert embedded.journal.count("sts", "AssumeRole") >= 2
