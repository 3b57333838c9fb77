"""Test that failing credentials never end what they had worked for."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession

from kinesumer.aws.account import read_caller
from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    AccessDeniedError,
    CredentialsError,
    KinesumerError,
    SourceUnavailableError,
    TransientError,
)
from kinesumer.handlers.dead_letters.letter import DeadLetter
from kinesumer.handlers.dead_letters.sqs import open_queue
from kinesumer.model.rows import Key
from kinesumer.model.streams import Stream
from kinesumer.wire.put_records import Entry
from tests.integration.aws.test_kinesis import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kinesumer.aws.clients import OpenClient
    from tests.integration.aws.stub import AwsStub

    Call = Callable[[], Awaitable[object]]

pytestmark = pytest.mark.pinned

KEY = Key("group#app", "group")
ROLE = "arn:aws:iam::210987654321:role/reader"
EMPTY = {"Records": [], "NextShardIterator": "y", "MillisBehindLatest": 0}
# Botocore itself would still return keys from its cache that are valid for longer.
LIFETIME = 800.0
CALLER = (
    "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn</Arn><Account>1"
    "</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
)
# What AWS answers for keys that it doesn't know, doesn't believe, or that have expired.
REFUSALS = ["UnrecognizedClientException", "InvalidSignatureException"]
EXPIRED = "ExpiredTokenException"


class Seconds:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class KeyFile:
    """A shared credentials file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, key: str) -> None:
        """Replace the keys."""
        self.path.write_text(
            f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n"
        )


@pytest.fixture
def file(environment: pytest.MonkeyPatch, aws: AwsStub, tmp_path: Path) -> KeyFile:
    """Return a shared credentials file with the keys A."""
    file = KeyFile(tmp_path / "credentials")
    file.write("A")
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file.path))
    return file


async def open_call(aws: AwsStub, clients: ClientFactory, name: str) -> Call:
    """Return a call of a service that AWS answers."""
    aws.answer("DescribeStreamSummary", SUMMARY)
    source = await open_source(clients, Stream("orders"))
    if name == "GetRecords":
        aws.answer(name, EMPTY)
        return lambda: source.get_records("x", 10)
    if name == "PutRecords":
        aws.answer(name, {"Records": [{"SequenceNumber": "1", "ShardId": "s"}]})
        return lambda: source.put_records([Entry(b"x", "k")])
    if name == "GetItem":
        aws.answer(name, {})
        store = await open_store(clients, "table")
        return lambda: store.get(KEY)
    if name == "SendMessage":
        aws.answer(name, {"MessageId": "1", "MD5OfMessageBody": ""})
        queue = await open_queue(clients, f"{aws.url}/1/letters")
        return lambda: queue.put(letter())
    if name == "GetCallerIdentity":
        aws.answer_raw(name, CALLER.encode(), content_type="text/xml")
        return lambda: read_caller(clients)
    return source.describe


def letter() -> DeadLetter:
    """Return a dead letter."""
    return DeadLetter(
        app="billing",
        stream_arn="arn:aws:kinesis:eu-west-1:1:stream/orders",
        shard_id="shardId-000000000000",
        sequence_number="1",
        data=b"x",
        failed_at=datetime.now(UTC),
        attempts=1,
        error="ValueError: x",
    )


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
    aws: AwsStub, file: KeyFile, name: str, code: str
) -> None:
    async with ClientFactory() as clients:
        call = await open_call(aws, clients, name)
        await call()
        file.write("B")
        aws.refused_keys["A"] = code
        await call()
    assert aws.keys(name) == ["A", "A", "B"]


@pytest.mark.parametrize("code", [*REFUSALS, EXPIRED])
async def test_another_thread_gets_the_keys_that_were_replaced(
    aws: AwsStub, file: KeyFile, code: str
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
    aws: AwsStub, file: KeyFile
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
    aws: AwsStub, environment: pytest.MonkeyPatch, file: KeyFile, tmp_path: Path
) -> None:
    """The file has the keys of the source profile, not of the profile itself."""
    config = tmp_path / "config"
    config.write_text(
        f"[default]\n[profile x]\nrole_arn={ROLE}\nsource_profile=default"
    )
    environment.setenv("AWS_CONFIG_FILE", str(config))
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


async def refused(call: Call) -> TransientError:
    """Make a call, and return the error that it raises because of its credentials."""
    with pytest.raises(TransientError) as raised:
        await call()
    assert raised.value.lacks_credentials
    return raised.value


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_repeated_until_the_file_has_other_keys(
    aws: AwsStub, file: KeyFile, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    seconds, reports = Seconds(), list[str]()
    async with ClientFactory(now=seconds, on_trouble=reports.append) as clients:
        call = await open_call(aws, clients, name)
        await call()
        aws.refused_keys["A"] = EXPIRED
        seconds.now += 100
        await refused(call)
        seconds.now += 40
        assert "for 40 s (ExpiredToken" in str(await refused(call))
        file.write("B")
        seconds.now += 40
        await call()
    assert aws.keys(name)[-1] == "B"
    assert "AWS has refused the credentials of the session" in reports[0]
    assert reports[-1] == ""
    assert "work again after 80 s" in caplog.text


async def test_a_source_that_has_the_refused_keys_is_asked_with_pauses(
    aws: AwsStub, file: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, reads = Seconds(), list[float]()
    async with ClientFactory(now=seconds) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.refused_keys["A"] = EXPIRED
        load = AioSession.get_component

        def count(self: AioSession, name: str) -> Any:
            if name == "credential_provider":
                reads.append(seconds.now)
            return load(self, name)

        monkeypatch.setattr(AioSession, "get_component", count)
        for _ in range(1200):
            seconds.now += 0.1
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
    aws: AwsStub, file: KeyFile, content: str
) -> None:
    seconds = Seconds()
    async with ClientFactory(now=seconds) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.refused_keys["A"] = EXPIRED
        file.path.write_text(content)
        seconds.now += 100
        await refused(call)
        file.write("B")
        seconds.now += 40
        await call()
    assert aws.keys("GetRecords") == ["A", "A", "A", "B"]


async def test_while_a_file_is_being_written_nobody_elses_keys_are_used(
    aws: AwsStub, file: KeyFile, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without keys in the file, the chain would go on to those of the process."""
    config = tmp_path / "config"
    environment.setenv("AWS_CONFIG_FILE", str(config))
    config.write_text(
        "[default]\naws_access_key_id=OTHER\naws_secret_access_key=secret"
    )
    seconds = Seconds()
    async with ClientFactory(now=seconds) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.refused_keys["A"] = EXPIRED
        file.path.write_text("")
        seconds.now += 100
        error = await refused(call)
    assert "shared-credentials-file: it gives none, and config-file gives" in str(error)
    assert set(aws.keys("GetRecords")) == {"A"}


# --- keys that are wrong from the start ----------------------------------------------


@pytest.mark.parametrize("code", [*REFUSALS, EXPIRED])
@pytest.mark.parametrize("name", CALLS)
async def test_keys_that_never_worked_are_an_error_that_says_what_to_do(
    aws: AwsStub, file: KeyFile, name: str, code: str
) -> None:
    aws.refused_keys["A"] = code
    async with ClientFactory() as clients:
        call = await open_call(aws, clients, name)
        text = "renew them" if code == EXPIRED else "doesn't accept the credentials"
        with pytest.raises(AccessDeniedError, match=text):
            await call()


async def test_keys_that_a_region_never_accepted_are_an_error_there(
    aws: AwsStub, file: KeyFile
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
    aws: AwsStub, file: KeyFile, name: str
) -> None:
    """A worker of Spark may start between the end of old keys and the new file."""
    file.path.write_text("")
    seconds = Seconds()
    async with ClientFactory(now=seconds, trusted=True) as clients:
        call = await open_call(aws, clients, name)
        assert "no AWS credentials yet" in str(await refused(call))
        file.write("A")
        aws.refused_keys["A"] = EXPIRED
        await refused(call)
        file.write("B")
        seconds.now += 100
        await call()


# --- renewals that fail ---------------------------------------------------------------


STS_ERRORS = [
    ("InvalidIdentityToken", 400),
    ("IDPCommunicationError", 400),
    ("AccessDenied", 403),
    ("ExpiredTokenException", 400),
    ("IDPRejectedClaim", 403),
    ("InternalFailure", 500),
    ("Anything", 418),
]
WEB = "AssumeRoleWithWebIdentity"


@pytest.fixture
def pod(environment: pytest.MonkeyPatch, aws: AwsStub, tmp_path: Path) -> Path:
    """Return the token of a pod in Kubernetes whose role has keys for 1,000 s."""
    token = tmp_path / "token"
    token.write_text("a.web.token")
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    environment.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    environment.setenv("AWS_ROLE_ARN", ROLE)
    environment.setenv("AWS_MAX_ATTEMPTS", "1")
    aws.assume_role(LIFETIME, WEB)
    return token


async def until(condition: Callable[[], object], call: Call) -> None:
    """Repeat a call, which must not fail, until a condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await call()


@pytest.mark.parametrize(("code", "status"), STS_ERRORS)
async def test_no_call_fails_while_sts_refuses_to_renew_keys_that_are_valid(
    aws: AwsStub, pod: Path, code: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    seconds, reports = Seconds(), list[str]()
    async with ClientFactory(now=seconds, on_trouble=reports.append) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.forget(WEB)
        aws.refuse_role(code, "no", status, WEB)
        for _ in range(3):
            seconds.now += 200
            await call()
        await until(lambda: reports, call)
        assert "could not be renewed" in reports[0]
        assert code in reports[0]
        aws.forget(WEB)
        aws.assume_role(LIFETIME, WEB)
        seconds.now += 31
        await until(lambda: len(set(aws.keys("GetRecords"))) == 2, call)
    assert reports[-1] == ""
    assert "the keys in use expire in" in caplog.text


async def test_a_missing_token_is_a_failed_renewal(aws: AwsStub, pod: Path) -> None:
    seconds, reports = Seconds(), list[str]()
    async with ClientFactory(now=seconds, on_trouble=reports.append) as clients:
        call = await open_call(aws, clients, "GetItem")
        await call()
        pod.unlink()  # noqa: ASYNC240
        seconds.now += 600
        await until(lambda: reports, call)
        assert "No such file" in reports[0]


async def test_calls_wait_for_keys_when_those_in_use_have_expired(
    aws: AwsStub, pod: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = Seconds()
    async with ClientFactory(now=seconds) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.forget(WEB)
        aws.refuse_role("IDPCommunicationError", "no answer", 400, WEB)
        [key] = aws.keys("GetRecords")
        aws.refused_keys[key] = EXPIRED
        seconds.now += 1100
        for _ in range(3):
            seconds.now += 31
            error = str(await refused(call))
        assert "IDPCommunicationError: no answer" in error
        assert "for 62 s" in error
        aws.forget(WEB)
        aws.assume_role(LIFETIME, WEB)
        seconds.now += 31
        await call()
    assert "work again" in caplog.text


def metadata(key: str, seconds: float) -> dict[str, str]:
    """Return keys as a function of botocore's refreshable credentials returns them."""
    return {
        "access_key": key,
        "secret_key": "secret",
        "token": "token",
        "expiry_time": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(),
    }


def session_of(fetch: Callable[[], Awaitable[dict[str, str]]], seconds: float) -> Any:
    """Return a session with keys that the user's own function renews."""
    session = AioSession()
    session._credentials = AioRefreshableCredentials.create_from_metadata(
        metadata("KEY0", seconds), fetch, "agent"
    )
    return session


@pytest.mark.parametrize(
    "error",
    [RuntimeError("broken"), KeyError("x"), ValueError("x"), OSError("x"), None],
)
async def test_an_agent_that_fails_or_gives_expired_keys_is_asked_again(
    aws: AwsStub, error: Exception | None
) -> None:
    seconds, reports, asked = Seconds(), list[str](), 0

    async def fetch() -> dict[str, str]:
        nonlocal asked
        asked += 1
        if asked > 2:
            return metadata("KEY1", 1000)
        if error is not None:
            raise error
        return metadata("OLD", -5)

    session = session_of(fetch, 1000)
    async with ClientFactory(
        session, now=seconds, on_trouble=reports.append
    ) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        seconds.now += 550
        await until(lambda: asked == 1 and reports, call)
        seconds.now += 40
        await until(lambda: asked == 2, call)
        seconds.now += 40
        await until(lambda: "KEY1" in aws.keys("GetRecords"), call)
    assert set(aws.keys("GetRecords")) == {"KEY0", "KEY1"}
    assert reports[-1] == ""


async def test_a_source_that_never_answers_delays_no_call(
    aws: AwsStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.aws.credentials.FETCH_SECONDS", 0.05)
    seconds, reports = Seconds(), list[str]()

    async def fetch() -> dict[str, str]:
        await asyncio.Event().wait()
        raise AssertionError

    session = session_of(fetch, 1000)
    async with ClientFactory(
        session, now=seconds, on_trouble=reports.append
    ) as clients:
        call = await open_call(aws, clients, "GetRecords")
        seconds.now += 600
        await until(lambda: reports, call)
    assert "no answer in time" in reports[0]


async def test_a_process_that_gives_no_json_is_a_credentials_error_at_the_start(
    aws: AwsStub, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    environment.delenv("AWS_SECRET_ACCESS_KEY")
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process={sys.executable} -c print(1,2)")
    environment.setenv("AWS_CONFIG_FILE", str(config))
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

    async with ClientFactory(session_of(fetch, 1000)) as clients:
        call = await open_call(aws, clients, "GetRecords")
        await call()
        aws.refused_keys["KEY0"] = EXPIRED
        for _ in range(3):
            assert "no others yet" in str(await refused(call))
        goes_on.set()
        await call()


# --- a session in several event loops -------------------------------------------------


class Lender:
    """A thread with an event loop and a factory, as a blocking client has."""

    def __init__(self, session: AioSession, now: Seconds) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.clients = ClientFactory(session, now=now)

    def run(self, work: Awaitable[Any]) -> Any:
        """Run a coroutine on the thread's loop."""

        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(20)

    def close(self) -> None:
        """End the thread."""
        self.run(self.clients.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def test_event_loops_that_share_a_session_renew_its_keys_at_the_same_time(
    aws: AwsStub,
) -> None:
    """Botocore's lock would be bound to the first loop in which two calls wait."""
    seconds, running, most = Seconds(), 0, 0

    async def fetch() -> dict[str, str]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.2)
        running -= 1
        return metadata("KEY1", 1000)

    session = session_of(fetch, 1000)
    aws.answer("DescribeStreamSummary", SUMMARY)
    lenders = [Lender(session, seconds) for _ in range(3)]

    async def work(opened: OpenClient) -> None:
        describe = opened.client.describe_stream_summary
        while "KEY1" != (await opened.credentials.get_frozen_credentials()).access_key:
            await asyncio.gather(*(describe(StreamName="orders") for _ in range(5)))

    def both(lender: Lender) -> None:
        lender.run(work(lender.run(lender.clients.open("kinesis"))))

    try:
        for lender in lenders:
            await asyncio.to_thread(lender.run, lender.clients.open("kinesis"))
        seconds.now += 600
        await asyncio.gather(*(asyncio.to_thread(both, each) for each in lenders))
    finally:
        for lender in lenders:
            await asyncio.to_thread(lender.close)
    assert most == 1


async def test_an_error_of_a_role_is_the_same_for_all_who_wait(
    aws: AwsStub, file: KeyFile
) -> None:
    aws.refuse_role("AccessDenied", "no")
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders", role_arn=ROLE))
        calls = (source.describe() for _ in range(5))
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {AccessDeniedError}
    assert isinstance(errors[0], KinesumerError)
    assert aws.count("AssumeRole") == 1


async def test_a_role_that_sts_denies_later_is_no_error(
    aws: AwsStub, file: KeyFile, caplog: pytest.LogCaptureFixture
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
