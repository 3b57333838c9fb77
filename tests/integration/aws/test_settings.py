"""Test that the settings of the user's session apply to every client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pytest
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from botocore.config import Config

from kinesumer.aws.dynamodb import open_borrowed_store, open_store
from kinesumer.aws.http import client as direct
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.pool import ConnectionPool
from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.session_clients import SessionClients
from kinesumer.model.streams import Start, Stream
from kinesumer.wire.put_records import Entry
from tests.support.aws_keys import EMPTY, KEY, ROLE, SUMMARY
from tests.support.aws_stub import AwsStub

Make = Callable[[], Any]

pytestmark = pytest.mark.pinned

TAKEN = {"Records": [{"SequenceNumber": "1", "ShardId": "shardId-0"}]}


def of_aiobotocore() -> AioSession:
    session = AioSession()
    session.set_credentials("THEIRS", "secret")
    return session


def of_aioboto3() -> Any:
    aioboto3 = pytest.importorskip("aioboto3", reason="only with the aioboto3 extra")
    return aioboto3.Session("THEIRS", "secret", region_name="us-west-2")


def botocores(session: Any) -> AioSession:
    """Return the botocore session, on which users of aioboto3 set other options."""
    return getattr(session, "_session", session)


either = pytest.mark.parametrize("make", [of_aiobotocore, of_aioboto3])


# --- endpoints ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "endpoint"),
    [
        ("AWS_USE_DUALSTACK_ENDPOINT", "https://dynamodb.eu-west-1.api.aws"),
        ("AWS_USE_FIPS_ENDPOINT", "https://dynamodb-fips.ca-central-1.amazonaws.com"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("NOTHING", "http://127.0.0.1:1"),
    ],
)
async def test_a_heartbeat_is_sent_where_the_variables_or_the_arguments_say(
    aws: AwsStub, environment: pytest.MonkeyPatch, variable: str, endpoint: str
) -> None:
    environment.delenv("AWS_ENDPOINT_URL")
    environment.setenv(variable, endpoint if variable.endswith("URL") else "true")
    region = "ca-central-1" if "fips" in endpoint else "eu-west-1"
    given = {"dynamodb": endpoint} if variable == "NOTHING" else {}
    async with ClientFactory(region=region, endpoints=given) as clients:
        async with (await clients.lend())() as lent:
            assert lent.client.meta.endpoint_url == endpoint
        assert (await clients.open("dynamodb")).client.meta.endpoint_url == endpoint


# --- configuration --------------------------------------------------------------------


@either
@pytest.mark.parametrize("kind", [AioConfig, Config])
async def test_a_proxy_of_the_session_is_every_clients(
    aws: AwsStub, environment: pytest.MonkeyPatch, make: Make, kind: type[Config]
) -> None:
    environment.setenv("AWS_ENDPOINT_URL", "http://aws.nowhere.invalid")
    session = make()
    botocores(session).set_default_client_config(kind(proxies={"http": aws.url}))
    aws.answer("GetItem", {})
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.answer("GetRecords", EMPTY)
    aws.assume_role(3600)
    async with ClientFactory(session) as clients:
        await (await open_store(clients, "table")).get(KEY)
        async with open_borrowed_store(await clients.lend(), "table") as store:
            await store.get(KEY)
        source = await open_source(clients, Stream("orders", role_arn=ROLE))
        await source.describe()
        await source.get_records("x", 10)
    assert aws.keys("GetItem") == ["THEIRS", "THEIRS"]
    assert aws.keys("AssumeRole") == ["THEIRS"]
    assert aws.keys("GetRecords") == ["ROLE1"]
    assert {seen.headers["Host"] for seen in aws.seen} == {"aws.nowhere.invalid"}


async def test_settings_of_the_session_stay_but_for_our_limits(
    clients: ClientFactory, aws: AwsStub
) -> None:
    session = of_aiobotocore()
    session.set_config_variable("sts_regional_endpoints", "regional")
    session.set_default_client_config(
        AioConfig(
            user_agent_extra="theirs",
            retries={"max_attempts": 7},
            read_timeout=900,
            connector_args={"ttl_dns_cache": 3},
        )
    )
    async with ClientFactory(session) as clients:
        library = SessionClients(session, AddressCache(), {}, 0)
        made = library.session(AioCredentials("key", "secret"))
        assert made.get_config_variable("sts_regional_endpoints") == "regional"
        role = await clients.open("kinesis", role=clients.role(ROLE))
        async with (await clients.lend())() as lent:
            for opened in (lent, role, await clients.open("sts")):
                config = opened.client.meta.config
                assert config.user_agent.endswith("theirs")
                assert config.connector_args["ttl_dns_cache"] == 3
                assert config.retries["total_max_attempts"] == 1
                assert config.read_timeout < 900


async def test_a_profile_of_the_session_is_every_clients(
    aws: AwsStub, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_text(f"[profile theirs]\nregion = us-west-2\nendpoint_url = {aws.url}\n")
    environment.setenv("AWS_CONFIG_FILE", str(file))
    environment.delenv("AWS_ENDPOINT_URL")
    environment.delenv("AWS_DEFAULT_REGION")
    session = of_aiobotocore()
    session.set_config_variable("profile", "theirs")
    aws.answer("GetItem", {})
    async with (
        ClientFactory(session) as clients,
        open_borrowed_store(await clients.lend(), "table") as store,
    ):
        assert clients.region == "us-west-2"
        await store.get(KEY)
    assert aws.keys("GetItem") == ["THEIRS"]


async def test_a_resolver_of_the_session_is_used_on_its_own_loop_only() -> None:
    class Theirs(aiohttp.ThreadedResolver):
        """A user's resolver, which belongs to one event loop."""

    theirs, ours = Theirs(), Resolver(AddressCache())
    session = of_aiobotocore()
    session.set_default_client_config(AioConfig(connector_args={"resolver": theirs}))
    library = SessionClients(session, AddressCache(), {}, 0)
    here = library.config("dynamodb", ours)
    other_loop = library.config("dynamodb", ours, other_loop=True)
    assert here.connector_args["resolver"] is theirs
    assert other_loop.connector_args["resolver"] is ours


async def test_a_session_that_makes_clients_its_own_way_is_warned_of(
    aws: AwsStub, caplog: pytest.LogCaptureFixture
) -> None:
    class Theirs(AioSession):  # type: ignore[misc]
        def create_client(self, *_: object, **__: object) -> None:
            raise AssertionError

    session = Theirs()
    session.set_credentials("THEIRS", "secret")
    aws.answer("GetItem", {})
    async with ClientFactory(session) as clients:
        await (await open_store(clients, "table")).get(KEY)
    assert aws.keys("GetItem") == ["THEIRS"]
    assert caplog.text.count("not its method to create clients") == 1


@either
async def test_sessions_of_the_libraries_are_used_without_a_word(
    aws: AwsStub, caplog: pytest.LogCaptureFixture, make: Make
) -> None:
    async with ClientFactory(make()) as clients:
        assert clients.region == ("us-west-2" if make is of_aioboto3 else "eu-west-1")
        await clients.open("dynamodb")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


async def test_of_a_wrapped_session_credentials_region_and_profile_are_used(
    aws: AwsStub, environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrapper:
        """Imitates another library's session, which wraps one of aiobotocore."""

        region_name, profile_name = "eu-north-1", "default"

        def client(self, *_: object, **__: object) -> None:
            raise AssertionError

        async def get_credentials(self) -> object:
            return await of_aiobotocore().get_credentials()

    aws.answer("GetItem", {})
    async with ClientFactory(Wrapper()) as clients:
        assert clients.region == "eu-north-1"
        await (await open_store(clients, "table")).get(KEY)
    assert aws.keys("GetItem") == ["THEIRS"]
    assert "session is a Wrapper" in caplog.text


# --- region ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environs", "own", "theirs"),
    [
        ({"AWS_REGION": "us-east-2"}, "us-east-2", "us-east-2"),
        ({"AWS_DEFAULT_REGION": "us-west-1"}, "us-west-1", "us-west-1"),
        (
            {"AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-west-1"},
            "us-east-2",
            "us-west-1",
        ),
    ],
)
async def test_a_region_is_taken_from_either_variable(
    aws: AwsStub,
    environment: pytest.MonkeyPatch,
    environs: dict[str, str],
    own: str,
    theirs: str,
) -> None:
    environment.delenv("AWS_DEFAULT_REGION")
    for name, value in environs.items():
        environment.setenv(name, value)
    async with ClientFactory() as clients, ClientFactory(of_aiobotocore()) as others:
        for made, region in ((clients, own), (others, theirs)):
            client = (await made.open("dynamodb")).client
            assert (made.region, client.meta.region_name) == (region, region)


async def test_a_region_of_the_session_goes_before_variables(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_REGION", "us-east-2")
    session = of_aiobotocore()
    session.set_config_variable("region", "sa-east-1")
    configured = of_aiobotocore()
    configured.set_default_client_config(AioConfig(region_name="ap-south-1"))
    assert ClientFactory(session).region == "sa-east-1"
    assert ClientFactory(configured).region == "ap-south-1"
    assert ClientFactory(region="eu-north-1").region == "eu-north-1"


# --- hooks ----------------------------------------------------------------------------


@either
@pytest.mark.parametrize("event", ["before-send", "after-call", "request-created"])
async def test_the_sessions_hooks_see_all_calls(
    aws: AwsStub, environment: pytest.MonkeyPatch, make: Make, event: str
) -> None:
    environment.setattr(direct, "LARGE_BYTES", 5000)
    session, heard = make(), list[str]()

    def hook(event_name: str, **_: object) -> None:
        heard.append(event_name.rpartition(".")[2])

    emitter = botocores(session).get_component("event_emitter")
    emitter.register(f"{event}.kinesis", hook)
    emitter.register(f"{event}.dynamodb", hook)
    aws.answer("GetItem", {})
    aws.answer("GetShardIterator", {"ShardIterator": "x"})
    aws.answer("GetRecords", EMPTY)
    aws.answer("PutRecords", TAKEN)
    aws.assume_role(3600)
    async with ClientFactory(session) as clients:
        for stream in (Stream("orders"), Stream("orders", role_arn=ROLE)):
            source = await open_source(clients, stream)
            start = Start(type="AT_TIMESTAMP", timestamp=1_700_000_000.25)
            assert await source.get_iterator("shardId-0", start) == "shardId-0 x"
            assert (await source.get_records("s x", 10)).next_iterator == "s y"
            [put] = await source.put_records([Entry(bytes(5000), "key", "0")])
            assert put.error_code is None
        async with open_borrowed_store(await clients.lend(), "table") as store:
            await store.get(KEY)
    each = ["GetShardIterator", "GetRecords", "PutRecords"]
    assert heard == [*each, *each, "GetItem"]
    [sent] = aws.seen[0].body.keys() & {"Timestamp"}
    assert int(aws.seen[0].body[sent]) == 1_700_000_000


async def test_hooks_of_other_calls_cost_nothing(aws: AwsStub) -> None:
    session = of_aiobotocore()
    events = session.get_component("event_emitter")
    events.register("before-send.kinesis.PutRecords", lambda **_: None)
    events.register("before-send.dynamodb", lambda **_: None)
    aws.answer("GetRecords", EMPTY)
    async with ClientFactory(session) as clients:
        source = await open_source(clients, Stream("orders"))
        with mock.patch.object(
            ConnectionPool, "send", autospec=True, side_effect=ConnectionPool.send
        ) as straight:
            await source.get_records("x", 10)
    assert straight.call_count == 1


# --- names ----------------------------------------------------------------------------


async def test_names_are_looked_up_off_asyncios_threads(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    port = aws.url.rpartition(":")[2]
    environment.setenv("AWS_ENDPOINT_URL", f"http://localhost:{port}")
    aws.answer("GetItem", {})
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.assume_role(3600)
    loop = asyncio.get_running_loop()
    with mock.patch.object(loop, "getaddrinfo", side_effect=AssertionError):
        async with ClientFactory() as clients:
            await (await open_store(clients, "table")).get(KEY)
            source = await open_source(clients, Stream("orders", role_arn=ROLE))
            await source.describe()
            async with open_borrowed_store(await clients.lend(), "table") as store:
                await store.get(KEY)
    assert aws.count("GetItem") == 2
