"""Test that direct calls are sent, signed and rejected like those of botocore."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.parsers import JSONParser
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.credentials import FrozenCredentials
from kinesumer.aws.errors import failure_of, refusal
from kinesumer.aws.http.client import KinesisCalls
from kinesumer.aws.http.pool import Address, ConnectionPool
from kinesumer.aws.http.sigv4 import Destination, Signer
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import FatalError, SourceUnavailableError
from kinesumer.model.streams import Stream
from tests.support.aws_keys import EMPTY
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

ARN = "arn:aws:kinesis:{}:123456789012:stream/orders"
POLL = {"ShardIterator": "x", "Limit": 10}
PLACE = {"ShardId": "shardId-000000000000", "ShardIteratorType": "LATEST"}


class SentError(Exception):
    """Raised in place of an answer, since the test doesn't send the request."""


class Parsed:
    """The parsed parts of a sent request."""

    def __init__(self, place: Address, request: bytes) -> None:
        head, self.body = request.split(b"\r\n\r\n", 1)
        first, *lines = head.decode().split("\r\n")
        self.method, path, _ = first.split(" ")
        self.headers = dict(line.split(": ", 1) for line in lines)
        assert int(self.headers["content-length"]) == len(self.body)
        scheme = "https" if place.tls else "http"
        host = self.headers["host"]
        assert host in (place.host, f"{place.host}:{place.port}")
        self.url = f"{scheme}://{host}{path}"


# --- where to ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NOTHING", "special"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
        ("AWS_ENDPOINT_URL", "http://localhost:4566/some/path"),
        ("AWS_ENDPOINT_URL_KINESIS", "https://vpce-1.kinesis.vpce.amazonaws.com"),
    ],
)
@pytest.mark.parametrize("region", ["eu-west-1", "fips-us-east-1"])
async def test_a_call_goes_where_botocore_would_send_it_for_the_same_region(
    environment: pytest.MonkeyPatch, variable: str, value: str, region: str
) -> None:
    environment.setenv("AWS_ACCESS_KEY_ID", "OWN")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    environment.setenv(variable, value)
    by_arn = {"StreamARN": ARN.format(region)}
    async with ClientFactory(region=region) as clients:
        opened = await clients.open("kinesis")
        for stream in ({}, by_arn):
            await check_sent(opened, "GetRecords", {**POLL, **stream})
            await check_sent(opened, "GetShardIterator", {**PLACE, **stream})


async def check_sent(
    opened: OpenClient, operation: str, arguments: dict[str, object]
) -> None:
    """Check that botocore and the direct call send the same request."""
    session = opened.client._endpoint.http_session
    with (
        mock.patch.object(session, "send", side_effect=SentError) as send,
        mock.patch.object(ConnectionPool, "send", side_effect=SentError) as straight,
    ):
        with pytest.raises(SentError):
            await KinesisCalls(opened).call(operation, arguments)
        with pytest.raises(SentError):
            await getattr(opened.client, xform_name(operation))(**arguments)
    ours, theirs = Parsed(*straight.call_args.args), send.call_args.args[0]
    assert (ours.method, ours.url) == (theirs.method, theirs.url)
    assert json.loads(ours.body) == json.loads(theirs.body)
    for name in ("content-type", "x-amz-target", "user-agent"):
        assert ours.headers[name] == _text(theirs.headers[name])
    assert _scope(ours.headers["authorization"]) == _scope(
        _text(theirs.headers["Authorization"])
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _scope(authorization: str) -> list[str]:
    found = re.search(r"Credential=(\S+),", authorization)
    assert found is not None
    key, _day, *scope = found[1].split("/")
    return [key, *scope]


# --- signed by whom, and when --------------------------------------------------------


async def test_what_arrives_is_signed_as_botocore_would_sign_it(
    aws: AwsStub, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("AWS_SESSION_TOKEN", "the/token==")
    aws.answer("GetRecords", EMPTY)
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream(ARN.format("eu-west-1")))
        await source.get_records("x" * 200, 10)
    [seen] = aws.seen
    moment = datetime.strptime(seen.headers["X-Amz-Date"], "%Y%m%dT%H%M%S%z")
    expected = of_botocore(
        Destination(aws.url + "/", "eu-west-1", "kinesis"),
        FrozenCredentials("OWN", "secret", "the/token=="),
        seen.headers,
        seen.raw,
        int(moment.timestamp()),
    )
    assert seen.headers["Authorization"] == expected


async def test_a_clock_that_is_off_is_waited_for(aws: AwsStub) -> None:
    aws.refuse("GetRecords", "InvalidSignatureException", "Signature not yet current")
    aws.refuse("GetRecords", "RequestTimeTooSkewed", "too far", 403)
    aws.answer("GetRecords", EMPTY)
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        for _ in range(2):
            with pytest.raises(SourceUnavailableError):
                await source.get_records("x", 10)
        assert (await source.get_records("s x", 10)).next_iterator == "s y"


# --- refusals ------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    code=st.from_regex(
        r"([a-z.]{0,9}#)?[A-Za-z]{1,30}(:http://[a-z]*)?", fullmatch=True
    ),
    text=st.none() | st.text(max_size=50),
    name=st.sampled_from(["message", "Message"]),
    status=st.sampled_from([400, 403, 429, 500, 503]),
)
def test_a_refusal_means_what_botocore_makes_of_it(
    code: str, text: str | None, name: str, status: int
) -> None:
    given: dict[str, Any] = {"__type": code}
    if text is not None:
        given[name] = text
    body = json.dumps(given).encode()
    parsed = JSONParser().parse(
        {"status_code": status, "headers": {}, "body": body}, None
    )
    theirs = ClientError(parsed, "GetRecords")
    assert failure_of(refusal("GetRecords", status, body)) == failure_of(theirs)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'"text"', b"{", b"<html>", b"\xff\xfe", b'{"message":5}']
)
@pytest.mark.parametrize(
    ("status", "error"),
    [(202, FatalError), (403, FatalError), (502, SourceUnavailableError)],
)
async def test_a_refusal_by_something_on_the_way_is_told_by_its_status(
    aws: AwsStub,
    clients: ClientFactory,
    body: bytes,
    status: int,
    error: type[Exception],
) -> None:
    aws.answer_raw("GetRecords", body, status)
    source = await open_source(clients, Stream("orders"))
    with pytest.raises(error, match=f"kinesis:GetRecords on orders.*{status}"):
        await source.get_records("x", 10)


WORD = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
KEYS = st.builds(
    FrozenCredentials, WORD.filter(lambda key: "," not in key), WORD, st.none() | WORD
)
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
HOSTS = st.one_of(
    st.lists(LABEL, min_size=1, max_size=4).map(".".join),
    st.lists(LABEL, min_size=1, max_size=4).map(".".join).map(str.upper),
    st.sampled_from(["127.0.0.1", "[::1]"]),
)
PORTS = st.sampled_from(["", ":80", ":443", ":4566"])
PATHS = st.sampled_from(["", "/", "/kinesis/", "/a/../b/", "/a//b/./", "/a b/ü~%20/"])
URLS = st.builds(
    "{}://{}{}{}".format, st.sampled_from(["http", "https"]), HOSTS, PORTS, PATHS
)
MOMENTS = st.integers(0, int(datetime(2100, 1, 1, tzinfo=UTC).timestamp()))


def of_botocore(
    destination: Destination,
    keys: FrozenCredentials,
    sent: Mapping[str, str],
    body: bytes,
    now: int,
) -> str:
    """Return the Authorization header that botocore creates for a request."""
    headers = {
        name: value
        for name, value in sent.items()
        if name.lower() in ("content-type", "x-amz-target")
    }
    request = AWSRequest("POST", destination.url, headers=headers, data=body)
    moment = datetime.fromtimestamp(now, UTC).replace(tzinfo=None)
    judge = SigV4Auth(keys, destination.service, destination.region)
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment):
        judge.add_auth(request)
    return str(request.headers["Authorization"])


@settings(max_examples=40)
@given(URLS, LABEL, LABEL, st.lists(st.tuples(KEYS, MOMENTS, st.binary()), min_size=1))
def test_signatures_are_those_of_botocore_whatever_changes_between_requests(
    url: str,
    region: str,
    service: str,
    requests: list[tuple[FrozenCredentials, int, bytes]],
) -> None:
    destination = Destination(url, region, service)
    signer = Signer(destination)
    for keys, now, body in requests:
        headers = signer.headers(keys, "Kinesis_20131202.GetRecords", body, now)
        expected = of_botocore(destination, keys, headers, body, now)
        assert headers["authorization"] == expected
        assert headers.get("x-amz-security-token") == keys.token


def test_the_key_is_derived_anew_when_the_day_or_the_secret_changes() -> None:
    signer = Signer(Destination("https://x.example/", "eu-west-1", "kinesis"))
    midnight = int(time.time()) // 86400 * 86400
    one, other = FrozenCredentials("A", "one"), FrozenCredentials("A", "other")
    signatures = {
        signer.headers(keys, "t", b"", now)["authorization"][-64:]
        for keys in (one, other, one)
        for now in (midnight - 1, midnight, midnight - 1)
    }
    assert len(signatures) == 4
