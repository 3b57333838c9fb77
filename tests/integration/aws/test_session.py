"""Test AWS clients of their own session, and how often definitions are read."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.loaders import JSONFileLoader
from botocore.session import Session as BotocoreSession

from kinesumer.aws.credentials import FrozenCredentials
from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.session_clients import FixedProvider
from kinesumer.errors import (
    ConfigurationError,
    CredentialsError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from kinesumer.model.streams import Stream
from tests.support.aws_keys import KEY
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned


@pytest.mark.parametrize("session", [BotocoreSession(), object(), "session"])
async def test_what_is_no_asynchronous_session_is_refused(
    aws: AwsStub, session: Any
) -> None:
    with pytest.raises(ConfigurationError, match="aiobotocore"):
        async with ClientFactory(session) as clients:
            await open_store(clients, "table")


@pytest.mark.parametrize(
    ("variables", "error", "message"),
    [
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            CredentialsError,
            "no AWS credentials: set",
        ),
        ({"AWS_SECRET_ACCESS_KEY": ""}, CredentialsError, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_DEFAULT_REGION": ""}, CredentialsError, "no AWS region"),
        ({"AWS_PROFILE": "nobody"}, CredentialsError, "nobody"),
        (
            {"AWS_ENDPOINT_URL": "localhost:4566/ x"},
            ConfigurationError,
            "localhost:4566",
        ),
    ],
)
async def test_what_the_environment_lacks_or_says_wrongly_is_reported_in_one_line(
    aws: AwsStub,
    environment: pytest.MonkeyPatch,
    variables: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    for name, value in variables.items():
        if value:
            environment.setenv(name, value)
        else:
            environment.delenv(name)
    async with ClientFactory() as clients:
        with pytest.raises(error, match=message) as raised:
            await open_store(clients, "table")
    assert "\n" not in str(raised.value)


async def test_a_services_own_endpoint_wins(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    environment.setenv("AWS_ENDPOINT_URL_DYNAMODB", aws.url)
    aws.answer("GetItem", {})
    async with ClientFactory() as clients:
        assert await (await open_store(clients, "table")).get(KEY) is None
        assert "kinesumer/" in aws.seen[0].user_agent
        with pytest.raises(SourceUnavailableError):
            await (await open_source(clients, Stream("orders"))).describe()


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
async def test_the_sdk_never_retries_whatever_the_environment_says(
    aws: AwsStub, environment: pytest.MonkeyPatch, mode: str
) -> None:
    environment.setenv("AWS_RETRY_MODE", mode)
    environment.setenv("AWS_MAX_ATTEMPTS", "5")
    aws.refuse("GetItem", "InternalServerError", status=500)
    aws.refuse("DescribeStreamSummary", "LimitExceededException")
    async with ClientFactory() as clients:
        with pytest.raises(StoreUnavailableError):
            await (await open_store(clients, "table")).get(KEY)
        with pytest.raises(SourceUnavailableError):
            await (await open_source(clients, Stream("orders"))).describe()
    assert len(aws.seen) == 2


# --- another thread ------------------------------------------------------------------


class RenewedCredentials(AioCredentials):  # type: ignore[misc]
    """Credentials that have other keys each time, and whose user knows no expiry."""

    asked = 0

    def __init__(self) -> None:
        super().__init__("", "")

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return different keys at each call."""
        self.asked += 1
        return FrozenCredentials(f"KEY{self.asked}", "secret")


@pytest.fixture
def renewed() -> RenewedCredentials:
    """Return credentials that a session has in the tests below."""
    return RenewedCredentials()


@pytest.fixture
def session(renewed: RenewedCredentials) -> AioSession:
    """Return a session with credentials of the user's own making."""
    session = AioSession()
    session.register_component("credential_provider", FixedProvider(renewed))
    return session


async def test_a_loan_follows_keys_that_the_other_loop_renews(
    aws: AwsStub, session: AioSession
) -> None:
    aws.answer("GetItem", {})
    async with ClientFactory(session) as clients:
        loan = await clients.lend()

        async def beat() -> None:
            async with open_borrowed_store(loan, "table") as store:
                while len(set(aws.keys("GetItem"))) < 3:
                    await store.get(KEY)
                    await asyncio.sleep(0.05)

        await asyncio.to_thread(lambda: asyncio.run(beat()))
    # On a slow machine, the first of the keys expire before a call was made with them.
    found = [int(key.removeprefix("KEY")) for key in dict.fromkeys(aws.keys("GetItem"))]
    assert found == [*range(found[0], found[0] + 3)]


async def test_a_loan_never_waits_for_a_loop_that_is_blocked(
    session: AioSession, renewed: RenewedCredentials, aws: AwsStub
) -> None:
    seconds = 0.0
    async with ClientFactory(session, now=lambda: seconds) as clients:
        async with (await clients.lend())() as lent:
            seconds += 3600  # the keys are due
            keys: list[str] = []

            async def other_loop() -> None:
                found = await lent.credentials.get_frozen_credentials()
                keys.append(found.access_key)
                assert not await lent.credentials.replace("KEY1")

            thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
            thread.start()
            thread.join(timeout=10)  # blocks this loop, as a slow handler does
            assert not thread.is_alive()
    assert keys == ["KEY1"]


async def test_credentials_without_an_expiry_are_asked_once_a_second(
    session: AioSession, renewed: RenewedCredentials, aws: AwsStub
) -> None:
    seconds = 0.0
    async with ClientFactory(session, now=lambda: seconds) as clients:
        credentials = (await clients.open("dynamodb")).credentials
        for _ in range(100):
            await credentials.get_frozen_credentials()
            await asyncio.sleep(0)
            seconds += 0.02
    assert renewed.asked == 2


@pytest.fixture
def read(aws: AwsStub, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that are read from now on."""
    files: list[str] = []
    load = JSONFileLoader.load_file

    def loading(self: JSONFileLoader, path: str) -> Any:
        found = load(self, path)
        if found is not None:
            files.append(path)
        return found

    monkeypatch.setattr(JSONFileLoader, "load_file", loading)
    return files


async def open_all() -> None:
    async with ClientFactory() as clients:
        for service in ("dynamodb", "kinesis"):
            await clients.open(service)


async def test_clients_that_follow_others_read_no_definitions(read: list[str]) -> None:
    await open_all()
    read.clear()
    await open_all()
    assert read == []


async def test_other_definitions_are_read_where_the_environment_says_so(
    read: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await open_all()
    read.clear()
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    await open_all()
    assert any("dynamodb" in path for path in read)
