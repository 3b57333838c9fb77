"""Test that errors of AWS and of the SDK are passed on without their secrets."""

# ruff: noqa: F811  fixtures are imported
from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from aiobotocore.session import AioSession
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from kinesumer import (
    AccessDeniedError,
    ConfigurationError,
    KinesumerError,
    Stream,
)
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.glue import get_schema_version
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.decoding.confluent_api import ConfluentApi
from kinesumer.handlers.dead_letters.targets import open_target
from kinesumer.wire.put_records import Entry
from tests.support.aws_stub import AwsStub, aws, environment, stub  # noqa: F401
from tests.support.letters import LETTER
from tests.system.security.evidence import Evidence

Call = Callable[[ClientFactory], Awaitable[object]]

# The tests share the server of the imported fixtures.
pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET, TOKEN, PASSWORD = "the+secret", "the+session/token==", "hunter2"
EXTERNAL_ID = "agreed+with/partner"
# Users forget to encode what has a meaning in a URL.
PASSWORDS = [PASSWORD, *(f"x{mark}{PASSWORD}" for mark in "/#?:@%")]
ROLE = "arn:aws:iam::210987654321:role/reader"
REFUSED = f"""The request signature we calculated does not match the signature you \
provided. Check your AWS Secret Access Key and signing method. Consult the service \
documentation for details.

The Canonical String for this request should have been
'POST
/

host:kinesis.eu-west-1.amazonaws.com
x-amz-security-token:{TOKEN}

host;x-amz-security-token
44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a'
"""


async def describe(clients: ClientFactory) -> object:
    return await (await open_source(clients, Stream("orders"))).describe()


async def read(clients: ClientFactory) -> object:
    return await (await open_source(clients, Stream("orders"))).get_records("place", 1)


async def look_at_the_table(clients: ClientFactory) -> object:
    return await (await open_store(clients, "table")).verify()


async def assume(clients: ClientFactory) -> object:
    stream = Stream("orders", role_arn=ROLE, external_id=EXTERNAL_ID)
    return await (await open_source(clients, stream)).describe()


CALLS = {
    "DescribeStreamSummary": describe,
    "GetRecords": read,
    "DescribeTable": look_at_the_table,
    "AssumeRole": assume,
}
every_way = pytest.mark.parametrize(("operation", "call"), CALLS.items(), ids=CALLS)


async def evidence_of(call: Call, session: Any = None) -> tuple[Evidence, Any]:
    """Return the texts that a failing call left behind, and its error."""
    found = Evidence()
    async with ClientFactory(session) as clients:
        with pytest.raises(KinesumerError) as raised:
            await call(clients)
    found.add_error(raised.value)
    return found, raised.value


@pytest.fixture
def keys(environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Temporary credentials, and a region."""
    environment.setenv("AWS_ACCESS_KEY_ID", "ASIAEXAMPLE")
    environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    environment.setenv("AWS_SESSION_TOKEN", TOKEN)
    environment.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    return environment


@every_way
async def test_a_refused_signature_is_told_without_the_request(
    aws: AwsStub,
    keys: pytest.MonkeyPatch,
    operation: str,
    call: Call,
) -> None:
    if operation == "AssumeRole":
        aws.refuse_role("SignatureDoesNotMatch", REFUSED)
    else:
        aws.refuse(operation, "InvalidSignatureException", REFUSED)
    found, error = await evidence_of(call)
    assert isinstance(error, AccessDeniedError)
    assert "Check your AWS Secret Access Key" in str(error)
    assert not found.leaks({"token": TOKEN, "secret": SECRET})


async def put(clients: ClientFactory) -> object:
    source = await open_source(clients, Stream("orders"))
    return await source.put_records([Entry(b"data", "key")])


async def send_letter(clients: ClientFactory) -> object:
    letters = await open_target("sqs:http://127.0.0.1/1/letters", clients)
    await letters.put(LETTER)
    return letters


async def get_schema(clients: ClientFactory) -> object:
    return await get_schema_version(await clients.open("glue"), UUID(int=1))


REPEATED = {
    **CALLS,
    "PutRecords": put,
    "SendMessage": send_letter,
    "GetSchemaVersion": get_schema,
}
WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": str,
    "html": html.escape,
    "url": quote,
    "json": lambda text: json.dumps(text).replace("/", r"\/"),
}


@pytest.mark.parametrize("status", [200, 400, 403, 502])
@pytest.mark.parametrize(("operation", "call"), REPEATED.items(), ids=list(REPEATED))
async def test_a_page_that_repeats_the_request_is_told_without_secrets(
    aws: AwsStub,
    keys: pytest.MonkeyPatch,
    operation: str,
    call: Call,
    status: int,
) -> None:
    for write in WRITTEN.values():
        aws.reset()
        aws.echo(operation, status, write)
        evidence, _ = await evidence_of(call)
        assert TOKEN in str(aws.seen[-1].headers)
        secrets = {"token": TOKEN, "secret": SECRET, "external id": EXTERNAL_ID}
        assert not evidence.leaks(secrets)


async def test_a_registrys_page_is_told_without_the_password(aws: AwsStub) -> None:
    async def page(request: web.BaseRequest) -> web.Response:
        told = dict(request.headers) | {"password": PASSWORD}
        body = json.dumps({"message": json.dumps(told)})
        return web.Response(status=422, text=body, content_type="application/json")

    evidence = Evidence()
    async with RawTestServer(page) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with ConfluentApi(url, "user", PASSWORD) as api:
            with pytest.raises(KinesumerError, match="status 422") as raised:
                await api.get("/schemas/ids/1")
    evidence.add_error(raised.value)
    basic = b64encode(f"user:{PASSWORD}".encode()).decode()
    assert "***" in str(raised.value)
    assert not evidence.leaks({"password": PASSWORD, "token": basic})


ENDPOINTS = [
    *((call, "AWS_ENDPOINT_URL") for call in CALLS.values()),
    (assume, "AWS_ENDPOINT_URL_STS"),
]


@pytest.mark.parametrize(("call", "variable"), ENDPOINTS)
@pytest.mark.parametrize("host", ["127.0.0.1:1", " x"])
@pytest.mark.parametrize("password", PASSWORDS)
async def test_a_password_in_an_endpoint_is_refused_and_not_repeated(
    aws: AwsStub,
    keys: pytest.MonkeyPatch,
    password: str,
    host: str,
    call: Call,
    variable: str,
) -> None:
    if variable == "AWS_ENDPOINT_URL":
        keys.delenv("AWS_ENDPOINT_URL_STS", raising=False)
    keys.setenv(variable, f"http://user:{password}@{host}")
    evidence, error = await evidence_of(call)
    assert isinstance(error, ConfigurationError)
    assert "endpoint" in str(error)
    assert not evidence.leaks({"password": PASSWORD})
    assert not evidence.leaks({"password": password})


@every_way
async def test_a_proxy_is_named_without_its_password(
    keys: pytest.MonkeyPatch, operation: str, call: Call
) -> None:
    keys.setenv("HTTPS_PROXY", f"http://user:{PASSWORD}@127.0.0.1:1")
    keys.setenv("NO_PROXY", "")
    found, error = await evidence_of(call)
    assert "127.0.0.1:1" in str(error)
    assert not found.leaks({"password": PASSWORD})


@pytest.mark.parametrize("session", [{"aws_secret_access_key": SECRET}, SECRET])
async def test_what_is_no_session_is_refused_by_its_type(session: object) -> None:
    with pytest.raises(
        ConfigurationError, match=f"session is a {type(session).__name__}"
    ) as raised:
        ClientFactory(session)
    assert SECRET not in str(raised.value)


async def test_keys_that_users_set_in_a_session_arent_shown(
    aws: AwsStub,
    keys: pytest.MonkeyPatch,
) -> None:
    session = AioSession()
    session.set_credentials("AKIAEXAMPLE", SECRET, TOKEN)
    aws.refuse("DescribeTable", "UnrecognizedClientException", "The token is invalid.")
    found, _ = await evidence_of(look_at_the_table, session)
    async with ClientFactory(session) as clients:
        await open_store(clients, "table")
        found.add_objects(clients, await clients.lend())
    assert not found.leaks({"token": TOKEN, "secret": SECRET})
