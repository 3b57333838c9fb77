"""Test AWS clients that use their own session, the user's or another thread's."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession
from botocore.session import Session as BotocoreSession

from kinesumer.aws.credentials import (
    BorrowedCredentials,
    FixedProvider,
    FrozenCredentials,
)
from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    ConfigurationError,
    CredentialsError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key
from kinesumer.model.streams import Stream

if TYPE_CHECKING:
    from kinesumer.aws.session import Loan
    from tests.integration.aws.stub import AwsStub

pytestmark = pytest.mark.pinned

ROLE = "arn:aws:iam::210987654321:role/reader"
KEY = Key("group#app", "group")


async def test_an_own_session_takes_everything_from_the_environment(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.answer("GetItem", {})
    store = await open_store(clients, "table")
    assert await store.get(KEY) is None
    [seen] = aws.seen
    assert seen.access_key == "OWN"
    assert "kinesumer/" in seen.user_agent


@pytest.mark.parametrize("session", [BotocoreSession(), object(), "session"])
async def test_what_is_no_asynchronous_session_is_refused(
    aws: AwsStub, session: Any
) -> None:
    with pytest.raises(ConfigurationError, match="aiobotocore"):
        async with ClientFactory(session) as clients:
            await open_store(clients, "table")


@pytest.mark.parametrize(
    ("unset", "message"),
    [
        (["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "no AWS credentials: set"),
        (["AWS_SECRET_ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY"),
        (["AWS_DEFAULT_REGION"], "no AWS region"),
    ],
)
async def test_what_the_environment_lacks_is_reported_in_one_line(
    aws: AwsStub, environment: pytest.MonkeyPatch, unset: list[str], message: str
) -> None:
    for name in unset:
        environment.delenv(name)
    async with ClientFactory() as clients:
        with pytest.raises(CredentialsError, match=message) as raised:
            await open_store(clients, "table")
    assert "\n" not in str(raised.value)


async def test_an_unknown_profile_is_reported(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_PROFILE", "nobody")
    async with ClientFactory() as clients:
        with pytest.raises(CredentialsError, match="nobody"):
            await open_store(clients, "table")


async def test_a_malformed_endpoint_is_a_configuration_error(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "localhost:4566/ x")
    async with ClientFactory() as clients:
        with pytest.raises(ConfigurationError, match="localhost:4566"):
            await open_store(clients, "table")


async def test_a_services_own_endpoint_wins(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    environment.setenv("AWS_ENDPOINT_URL_DYNAMODB", aws.url)
    aws.answer("GetItem", {})
    async with ClientFactory() as clients:
        assert await (await open_store(clients, "table")).get(KEY) is None
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


async def test_clients_are_shared_by_region_and_role(
    aws: AwsStub, clients: ClientFactory
) -> None:
    role = clients.role(ROLE)
    opened = [
        (await clients.open("kinesis", region, role)).client
        for region in (None, "eu-west-1", "us-east-1")
    ]
    assert opened[0] is opened[1] is not opened[2]


# --- another thread ------------------------------------------------------------------


async def test_a_loan_works_on_another_threads_loop_while_this_one_is_blocked(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.answer("GetItem", {})
    loan = await clients.lend()

    async def other_loop() -> None:
        async with open_borrowed_store(loan, "table") as store:
            await store.get(KEY)
            await store.get(KEY)

    await asyncio.to_thread(lambda: asyncio.run(other_loop()))
    assert aws.keys("GetItem") == ["OWN", "OWN"]


async def test_a_loan_follows_keys_that_renew_but_never_waits_for_a_blocked_loop(
    aws: AwsStub,
) -> None:
    renewed = 0

    async def renew() -> dict[str, str]:
        nonlocal renewed
        renewed += 1
        return {
            "access_key": f"KEY{renewed}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        }

    session = AioSession()
    # These credentials are due for renewal at every call.
    credentials = AioRefreshableCredentials.create_from_metadata(
        await renew(), renew, "test", advisory_timeout=7200
    )
    session.register_component("credential_provider", FixedProvider(credentials))
    aws.answer("GetItem", {})

    def other_loop(loan: Loan) -> None:
        async def beat() -> None:
            async with open_borrowed_store(loan, "table") as store:
                await store.get(KEY)

        asyncio.run(beat())

    async with ClientFactory(session) as clients:
        loan = await clients.lend()
        await asyncio.to_thread(other_loop, loan)
        owner = await clients.credentials()
        lent = BorrowedCredentials(
            owner, await owner.get_frozen_credentials(), asyncio.get_running_loop()
        )
        known = renewed
        thread = threading.Thread(
            target=lambda: keys.append(asyncio.run(lent.get_frozen_credentials()))
        )
        keys: list[Any] = []
        thread.start()
        thread.join(timeout=10)  # blocks this loop, as a slow handler does
        assert keys[0].access_key == f"KEY{known}"
    assert aws.keys("GetItem") == ["KEY3"]


class CountedCredentials:
    """Credentials that renew themselves, and count each request for their keys."""

    asked = 0

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return different keys at each call."""
        self.asked += 1
        return FrozenCredentials(f"KEY{self.asked}", "secret")


async def test_a_loan_does_not_ask_the_other_loop_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.aws.credentials.REQUEST_SECONDS", 0.3)
    owner = CountedCredentials()
    lent = BorrowedCredentials(
        owner, FrozenCredentials("KEY0", ""), asyncio.get_running_loop()
    )

    async def other_loop() -> list[str]:
        many = [lent.get_frozen_credentials() for _ in range(20)]
        first = await asyncio.gather(*many)
        again = await lent.get_frozen_credentials()
        await asyncio.sleep(0.3)
        last = await lent.get_frozen_credentials()
        return [first[0].access_key, again.access_key, last.access_key]

    keys = await asyncio.to_thread(lambda: asyncio.run(other_loop()))
    assert keys == ["KEY1", "KEY1", "KEY2"]
    assert owner.asked == 2


async def test_only_one_call_waits_for_a_loop_that_is_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kinesumer.aws.credentials.BORROW_SECONDS", 60.0)
    owner = CountedCredentials()
    lent = BorrowedCredentials(
        owner, FrozenCredentials("KEY0", ""), asyncio.get_running_loop()
    )
    keys: list[str] = []

    async def other_loop() -> None:
        waits = asyncio.create_task(lent.get_frozen_credentials())
        await asyncio.sleep(0)
        keys.append((await lent.get_frozen_credentials()).access_key)
        assert not waits.done()

    thread = threading.Thread(target=lambda: asyncio.run(other_loop()))
    thread.start()
    thread.join(timeout=10)  # blocks this loop, as a slow handler does
    assert keys == ["KEY0"]
