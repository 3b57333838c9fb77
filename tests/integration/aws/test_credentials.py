"""Test that failing credentials never end what they had worked for."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.session import AioSession

from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import AccessDeniedError, CredentialsError, SourceUnavailableError
from kinesumer.model.streams import Stream
from tests.support.aws_keys import (
    EXPIRED,
    KEY,
    LIFETIME,
    ROLE,
    SUMMARY,
    ProfileKeys,
    Seconds,
    calling,
    metadata,
    refused,
    session_of,
    until,
)
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

Profiles = Callable[[str], object]

# What AWS answers for keys that it doesn't know, doesn't believe, or that have expired.
REFUSALS = ["UnrecognizedClientException", "InvalidSignatureException"]


@pytest.fixture
def file(
    environment: pytest.MonkeyPatch, profiles: Profiles, tmp_path: Path
) -> ProfileKeys:
    """Return a shared credentials file with the keys A."""
    file = ProfileKeys(tmp_path / "credentials")
    file.write("A")
    environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file.path))
    return file


CALLS = [
    "DescribeStreamSummary",
    "GetRecords",
    "PutRecords",
    "GetItem",
    "SendMessage",
    "GetCallerIdentity",
]


# --- keys that were replaced in a file -----------------------------------------------


@pytest.mark.parametrize("code", [*REFUSALS, EXPIRED])
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_aws_refuses_is_repeated_with_the_keys_in_the_file(
    aws: AwsStub, file: ProfileKeys, name: str, code: str
) -> None:
    async with calling(aws, name) as call:
        await call()
        file.write("B")
        aws.refused_keys["A"] = code
        await call()
    assert aws.keys(name) == ["A", "A", "B"]


@pytest.mark.parametrize("code", [*REFUSALS, EXPIRED])
async def test_another_thread_gets_the_keys_that_were_replaced(
    aws: AwsStub, file: ProfileKeys, code: str
) -> None:
    aws.answer("GetItem", {})
    async with ClientFactory() as clients:
        loan = await clients.lend()

        async def beat() -> None:
            async with open_borrowed_store(loan, "table") as store:
                await store.get(KEY)
                file.write("B")
                aws.refused_keys["A"] = code
                await store.get(KEY)

        await asyncio.to_thread(lambda: asyncio.run(beat()))
    assert aws.keys("GetItem") == ["A", "A", "B"]


async def test_a_role_is_assumed_with_the_keys_that_were_replaced(
    aws: AwsStub, file: ProfileKeys
) -> None:
    aws.assume_role(3600)
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.refused_keys["A"] = "InvalidClientTokenId"
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders", role_arn=ROLE))
        file.write("B")
        await source.describe()
    assert aws.keys("AssumeRole") == ["A", "B"]


async def test_a_profile_assumes_its_role_with_the_keys_that_were_replaced(
    aws: AwsStub,
    environment: pytest.MonkeyPatch,
    file: ProfileKeys,
    profiles: Profiles,
) -> None:
    """The file has the keys of the source profile, not of the profile itself."""
    profiles(f"[default]\n[profile x]\nrole_arn={ROLE}\nsource_profile=default")
    environment.setenv("AWS_PROFILE", "x")
    aws.assume_role(LIFETIME)
    aws.answer("DescribeStreamSummary", SUMMARY)
    seconds = Seconds()
    async with ClientFactory(now=seconds) as clients:
        source = await open_source(clients, Stream("orders"))
        await source.describe()
        file.write("B")
        aws.refused_keys["A"] = "InvalidClientTokenId"
        seconds.now += 600
        await until(lambda: aws.seen[-1].access_key == "ROLE3", source.describe)
    assert aws.keys("AssumeRole") == ["A", "A", "B"]


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_repeated_until_the_file_has_other_keys(
    aws: AwsStub, file: ProfileKeys, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with calling(aws, name) as call:
        await call()
        aws.refused_keys["A"] = EXPIRED
        call.seconds.now += 100
        await refused(call)
        call.seconds.now += 40
        assert "for 40 s (ExpiredToken" in str(await refused(call))
        file.write("B")
        call.seconds.now += 40
        await call()
    assert aws.keys(name)[-1] == "B"
    assert "AWS has refused the credentials of the session" in call.reports[0]
    assert call.reports[-1] == ""
    assert "work again after 80 s" in caplog.text


async def test_a_source_that_has_the_refused_keys_is_asked_with_pauses(
    aws: AwsStub, file: ProfileKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = list[float]()
    async with calling(aws) as call:
        await call()
        aws.refused_keys["A"] = EXPIRED
        load = AioSession.get_component

        def count(self: AioSession, name: str) -> Any:
            if name == "credential_provider":
                reads.append(call.seconds.now)
            return load(self, name)

        monkeypatch.setattr(AioSession, "get_component", count)
        for _ in range(1200):
            call.seconds.now += 0.1
            await refused(call)
    assert 24 <= len(reads) <= 60


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[default]\n",
        "[default]\naws_access_key_id = B\n",
        "[default\nx",
        "[other]\n",
    ],
)
async def test_a_file_that_is_being_written_is_read_again(
    aws: AwsStub, file: ProfileKeys, content: str
) -> None:
    async with calling(aws) as call:
        await call()
        aws.refused_keys["A"] = EXPIRED
        file.path.write_text(content)
        call.seconds.now += 100
        await refused(call)
        file.write("B")
        call.seconds.now += 40
        await call()
    assert aws.keys("GetRecords") == ["A", "A", "A", "B"]


async def test_while_a_file_is_being_written_nobody_elses_keys_are_used(
    aws: AwsStub, file: ProfileKeys, profiles: Profiles
) -> None:
    """Without keys in the file, the chain would go on to those of the process."""
    profiles("[default]\naws_access_key_id=OTHER\naws_secret_access_key=secret")
    async with calling(aws) as call:
        await call()
        aws.refused_keys["A"] = EXPIRED
        file.path.write_text("")
        call.seconds.now += 100
        error = await refused(call)
    assert "shared-credentials-file: it gives none, and config-file gives" in str(error)
    assert set(aws.keys("GetRecords")) == {"A"}


# --- keys that are wrong from the start ----------------------------------------------


@pytest.mark.parametrize("code", [*REFUSALS, EXPIRED])
@pytest.mark.parametrize("name", CALLS)
async def test_keys_that_never_worked_are_an_error_that_says_what_to_do(
    aws: AwsStub, file: ProfileKeys, name: str, code: str
) -> None:
    aws.refused_keys["A"] = code
    async with calling(aws, name) as call:
        text = "renew them" if code == EXPIRED else "doesn't accept the credentials"
        with pytest.raises(AccessDeniedError, match=text):
            await call()


async def test_keys_that_a_region_never_accepted_are_an_error_there(
    aws: AwsStub, file: ProfileKeys
) -> None:
    aws.answer("DescribeStreamSummary", SUMMARY)
    async with ClientFactory() as clients:
        await (await open_source(clients, Stream("orders"))).describe()
        aws.refused_keys["A"] = "UnrecognizedClientException"
        elsewhere = Stream("orders", region="me-south-1")
        with pytest.raises(AccessDeniedError, match="region and endpoint"):
            await (await open_source(clients, elsewhere)).describe()


@pytest.mark.parametrize("name", CALLS)
async def test_a_part_of_a_running_program_waits_for_keys_from_the_start(
    aws: AwsStub, file: ProfileKeys, name: str
) -> None:
    """A worker of Spark may start between the end of old keys and the new file."""
    file.path.write_text("")
    async with calling(aws, name, trusted=True) as call:
        assert "no AWS credentials yet" in str(await refused(call))
        file.write("A")
        aws.refused_keys["A"] = EXPIRED
        await refused(call)
        file.write("B")
        call.seconds.now += 100
        await call()


# --- renewals that fail ---------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [RuntimeError("broken"), KeyError("x"), ValueError("x"), OSError("x"), None],
)
async def test_an_agent_that_fails_or_gives_expired_keys_is_asked_again(
    aws: AwsStub, error: Exception | None
) -> None:
    asked = 0

    async def fetch() -> dict[str, str]:
        nonlocal asked
        asked += 1
        if asked > 2:
            return metadata("KEY1", 1000)
        if error is not None:
            raise error
        return metadata("OLD", -5)

    session = session_of(fetch, 1000)
    async with calling(aws, session=session) as call:
        await call()
        call.seconds.now += 550
        await until(lambda: asked == 1 and call.reports, call)
        call.seconds.now += 40
        await until(lambda: asked == 2, call)
        call.seconds.now += 40
        await until(lambda: "KEY1" in aws.keys("GetRecords"), call)
    assert set(aws.keys("GetRecords")) == {"KEY0", "KEY1"}
    assert call.reports[-1] == ""


async def test_a_source_that_never_answers_delays_no_call(
    aws: AwsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.aws.credentials.FETCH_SECONDS", 0.05)

    async def fetch() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    session = session_of(fetch, 1000)
    async with calling(aws, session=session) as call:
        call.seconds.now += 600
        await until(lambda: call.reports, call)
    assert "no answer in time" in call.reports[0]


async def test_a_process_that_gives_no_json_is_a_credentials_error_at_the_start(
    profiles: Profiles,
) -> None:
    profiles(f"[default]\ncredential_process={sys.executable} -c print(1,2)")
    async with ClientFactory() as clients:
        with pytest.raises(CredentialsError, match="no usable AWS credentials: JSON"):
            await open_store(clients, "table")


async def test_a_refused_call_waits_only_a_moment_for_a_source_that_hangs(
    aws: AwsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.aws.credentials.WAIT_SECONDS", 0.05)
    goes_on = asyncio.Event()

    async def fetch() -> dict[str, str]:
        await goes_on.wait()
        return metadata("KEY1", 1000)

    async with calling(aws, session=session_of(fetch, 1000)) as call:
        await call()
        aws.refused_keys["KEY0"] = EXPIRED
        for _ in range(3):
            assert "no others yet" in str(await refused(call))
        goes_on.set()
        await call()


# --- a session in several event loops -------------------------------------------------


async def test_a_role_that_sts_denies_later_is_no_error(
    aws: AwsStub, file: ProfileKeys, caplog: pytest.LogCaptureFixture
) -> None:
    aws.assume_role(1000)
    aws.answer("DescribeStreamSummary", SUMMARY)
    seconds = Seconds()
    caplog.set_level(logging.WARNING, "kinesumer")
    async with ClientFactory(now=seconds) as clients:
        source = await open_source(clients, Stream("orders", role_arn=ROLE))
        await source.describe()
        aws.forget("AssumeRole")
        aws.refuse_role("AccessDenied", "no")
        aws.refused_keys["ROLE1"] = EXPIRED
        seconds.now += 1100
        error = await refused(source.describe)
    assert isinstance(error, SourceUnavailableError)
    assert "access denied: sts:AssumeRole" in str(error)
