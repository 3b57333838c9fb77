"""Test calls with what the environment alone says, which need no botocore."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from aiobotocore.session import AioSession
from botocore import xform_name

from kinesumer.aws.clients import OpenClient, PlainClient, plain_endpoint
from kinesumer.aws.http.pool import client_context
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.roles import environment_keys
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import CredentialsError, StreamMissingError
from kinesumer.model.streams import Stream
from tests.support.aws_keys import ARN, EMPTY, SUMMARY
from tests.support.aws_stub import AwsStub

KEYS = {"AWS_ACCESS_KEY_ID": "OWN", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = "eu-west-1"
RECORD = {"Data": b"", "PartitionKey": "-"}
SHARD = {"StreamName": "orders", "ShardId": "shardId-0"}


@pytest.fixture(autouse=True)
def home(environment: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an empty home directory. Leave the environment without AWS's variables."""
    for name in [*os.environ]:
        if name.startswith("AWS_") or name.upper().endswith(("_PROXY", "CA_BUNDLE")):
            environment.delenv(name)
    environment.setenv("HOME", str(tmp_path))
    environment.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


def plain_clients(url: str, variables: dict[str, str] = KEYS) -> ClientFactory:
    """Return a factory that takes its keys from the environment."""
    keys, endpoints = environment_keys(variables), {"kinesis": url}
    return ClientFactory(region=REGION, endpoints=endpoints, keys=keys)


@pytest.mark.parametrize("token", [{}, {"AWS_SESSION_TOKEN": "token"}])
async def test_the_keys_are_those_that_botocore_finds(
    environment: pytest.MonkeyPatch, token: dict[str, str]
) -> None:
    for name, value in (KEYS | token).items():
        environment.setenv(name, value)
    source = environment_keys()
    assert source is not None
    found = await AioSession().get_credentials()
    assert source.method == found.method
    assert (await source.fetch()).frozen == tuple(await found.get_frozen_credentials())


async def test_the_keys_are_read_anew_each_time() -> None:
    variables = dict(KEYS)
    source = environment_keys(variables)
    assert source is not None
    variables["AWS_ACCESS_KEY_ID"] = "NEW"
    assert (await source.fetch()).frozen.access_key == "NEW"


async def test_keys_that_were_removed_are_reported(aws: AwsStub) -> None:
    variables = dict(KEYS)
    factory = plain_clients(aws.url, variables)
    del variables["AWS_SECRET_ACCESS_KEY"]
    async with factory as clients:
        with pytest.raises(CredentialsError, match="AWS_SECRET_ACCESS_KEY is not set"):
            await open_source(clients, Stream("orders"))


@pytest.mark.parametrize(
    "variable",
    [
        *KEYS,
        "AWS_PROFILE",
        "AWS_CONFIG_FILE",
        "AWS_CREDENTIAL_EXPIRATION",
        "AWS_USE_FIPS_ENDPOINT",
        "AWS_SECURITY_TOKEN",
        "AWS_SOMETHING_NEW",
        "HTTPS_PROXY",
        "http_proxy",
        "all_proxy",
    ],
)
def test_botocore_decides_with_any_other_variable_and_without_a_key(
    variable: str,
) -> None:
    assert environment_keys(KEYS) is not None
    value = "" if variable in KEYS else "x"
    assert environment_keys(KEYS | {variable: value}) is None


@pytest.mark.parametrize("file", ["config", "credentials"])
def test_botocore_decides_if_there_is_a_file_of_profiles(home: Path, file: str) -> None:
    (home / ".aws").mkdir()
    (home / ".aws" / file).touch()
    assert environment_keys(KEYS) is None


def test_a_user_without_a_home_directory_has_no_profiles(
    environment: pytest.MonkeyPatch,
) -> None:
    """A container may run as a user that the system doesn't know."""
    environment.delenv("HOME")
    environment.delenv("USERPROFILE")
    environment.setattr("os.getuid", lambda: 123_456_789)
    assert environment_keys(KEYS) is not None


@pytest.mark.parametrize(
    ("url", "region"),
    [
        (None, "eu-west-1/x"),
        ("", REGION),
        ("localhost:4566", REGION),
        ("ftp://localhost", REGION),
        ("http://localhost:99999", REGION),
        ("http://localhost:0", REGION),
        ("http://user@localhost", REGION),
        ("http://localhost?a=b", REGION),
        ("http://localhost#a", REGION),
        ("http://[", REGION),
        ("http://localhost", "here"),
        ("http://localhost", "eu-west-1/x"),
    ],
)
def test_botocore_finds_or_refuses_other_endpoints(
    url: str | None, region: str
) -> None:
    assert plain_endpoint(url, region) is None


@pytest.mark.parametrize("region", [REGION, "us-gov-west-1", "cn-north-1", "xx-new-9"])
@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("DescribeStreamSummary", {"StreamName": "orders"}),
        ("DescribeStreamSummary", {"StreamARN": ARN}),
        ("ListShards", {"StreamARN": ARN}),
        ("ListShards", {"NextToken": "token"}),
        ("GetShardIterator", {**SHARD, "ShardIteratorType": "LATEST"}),
        ("GetRecords", {"ShardIterator": "x"}),
        ("GetRecords", {"ShardIterator": "x", "StreamARN": ARN}),
        ("PutRecords", {"Records": [RECORD], "StreamARN": ARN}),
        (
            "SubscribeToShard",
            {
                "ConsumerARN": f"{ARN}/consumer/app:1",
                "ShardId": "shardId-0",
                "StartingPosition": {"Type": "LATEST"},
            },
        ),
    ],
)
async def test_the_endpoint_of_a_call_is_that_of_botocore(
    region: str, operation: str, arguments: dict[str, object]
) -> None:
    partition = {"us": "aws-us-gov", "cn": "aws-cn"}.get(region[:2], "aws")
    arguments = {
        name: value.replace("arn:aws:", f"arn:{partition}:")
        if isinstance(value, str)
        else value
        for name, value in arguments.items()
    }
    endpoint = plain_endpoint(None, region)
    assert endpoint is not None
    found = endpoint(operation, arguments)
    session = AioSession()
    session.set_credentials("OWN", "secret")
    async with session.create_client("kinesis", region_name=region) as client:
        url = await client.generate_presigned_url(
            xform_name(operation), Params=arguments
        )
    parts = urlsplit(url)
    assert urlsplit(found.url)[:2] == parts[:2]
    scope = f"/{found.region}/{found.service}/aws4_request"
    assert parse_qs(parts.query)["X-Amz-Credential"][0].endswith(scope)


@pytest.mark.parametrize(
    "replacement",
    [None, lambda self, **_: None, lambda self, **_: [][0]],
)
def test_botocore_finds_the_endpoint_if_its_rules_work_otherwise(
    environment: pytest.MonkeyPatch, replacement: object
) -> None:
    kind = "botocore.endpoint_provider.EndpointProvider.resolve_endpoint"
    environment.setattr(kind, replacement)
    assert plain_endpoint(None, REGION) is None


async def test_a_stream_is_described_listed_and_read_without_a_library_client(
    aws: AwsStub,
) -> None:
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.answer("ListShards", {"Shards": []})
    aws.answer("GetRecords", EMPTY)
    async with plain_clients(aws.url) as clients:
        opened = await clients.open_kinesis()
        source = await open_source(clients, Stream("orders"))
        assert (await source.describe()).arn == ARN
        assert await source.list_shards() == []
        assert (await source.get_records("x", 10)).records == []
    assert isinstance(opened, PlainClient)
    assert {seen.access_key for seen in aws.seen} == {"OWN"}
    assert {seen.user_agent for seen in aws.seen} == {aws.seen[0].user_agent}
    assert "kinesumer/" in aws.seen[0].user_agent


async def test_other_calls_create_a_library_client_with_the_same_keys(
    aws: AwsStub,
) -> None:
    aws.refuse("DescribeStreamSummary", "ResourceNotFoundException")
    aws.answer("ListStreams", {"StreamNames": ["order"], "HasMoreStreams": False})
    async with plain_clients(aws.url) as clients:
        source = await open_source(clients, Stream("orders"))
        with pytest.raises(StreamMissingError, match="Did you mean 'order'"):
            await source.describe()
    assert aws.keys("ListStreams") == ["OWN"]


async def test_a_role_and_an_odd_endpoint_need_a_library_client(
    aws: AwsStub,
) -> None:
    aws.assume_role(3600)
    async with plain_clients(aws.url) as clients:
        role = clients.role("arn:aws:iam::210987654321:role/reader")
        assert isinstance(await clients.open_kinesis(role=role), OpenClient)
    async with plain_clients(f"{aws.url}?a=b") as clients:
        assert isinstance(await clients.open_kinesis(), OpenClient)


def test_a_context_checks_certificates_and_host_names() -> None:
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.get_ca_certs()
    assert context is client_context()


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_the_environment_may_name_the_authorities(
    environment: pytest.MonkeyPatch, variable: str, tmp_path: Path
) -> None:
    environment.setenv(variable, str(tmp_path / "missing.pem"))
    with pytest.raises(FileNotFoundError):
        client_context()
