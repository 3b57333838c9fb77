"""Hold a client, or the parts with which Kinesis is called without one."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError

from kinesumer.aws.credentials import KeyUse, SigningKeys
from kinesumer.aws.http.pool import ConnectionPool
from kinesumer.aws.http.sigv4 import Destination
from kinesumer.runtime.extras import package_version
from kinesumer.runtime.partitions import partition_data

# TCP sends a lost first packet again after 1 s, and the next time after 3 s.
CONNECT_SECONDS = 3.0
# The longest wait for a byte. Chosen: a heartbeat must be sent again within its lease,
# while Kinesis, SQS and S3 may work at large bodies, and S3 holds up nothing else.
READ_SECONDS = {
    "kinesis": 10.0,
    "dynamodb": 2.0,
    "dynamodbstreams": 10.0,
    "sts": 5.0,
    "sqs": 10.0,
    "s3": 30.0,
    "glue": 5.0,
}
# Limit of each client's connections. For Kinesis, ``max_connections`` is added to it.
# Four times PARALLEL_WRITES, so that no write waits for a connection.
OTHER_CONNECTIONS = 128
# AWS's other operations belong to its control plane.
DATA_OPERATIONS = ("GetRecords", "GetShardIterator", "PutRecords", "SubscribeToShard")
# The arguments on which an endpoint may depend. Botocore's rules name them, too.
ARGUMENTS = ("StreamARN", "ConsumerARN")
FindEndpoint = Callable[[str, Mapping[str, object]], Destination]
_REGION = re.compile(r"[a-z]+(-[a-z0-9]+)+")


class OpenClient(NamedTuple):
    """A client, its credentials, and pools for requests that bypass the client.

    ``others`` has the connections of Kinesis's calls that ``max_connections`` does not
    limit.
    """

    client: Any
    credentials: SigningKeys
    keys: KeyUse
    connections: ConnectionPool
    others: ConnectionPool

    async def library_client(self) -> Any:
        """Return the client of aiobotocore."""
        return self.client


class PlainClient(NamedTuple):
    """The parts with which Kinesis is called without a client of aiobotocore."""

    find_endpoint: FindEndpoint
    credentials: SigningKeys
    keys: KeyUse
    connections: ConnectionPool
    others: ConnectionPool
    library_client: Callable[[], Awaitable[Any]]
    """Returns a client of aiobotocore, for calls that are not made directly."""


def _find_endpoint(
    url: str | None, region: str, operation: str, arguments: Mapping[str, object]
) -> Destination:
    """Return where to send a call: to a URL, or where botocore's rules tell.

    No client of aiobotocore is needed. Raise BotoCoreError if no rule applies.
    """
    if url is None:
        named = {name: arguments[name] for name in ARGUMENTS if name in arguments}
        plane = "data" if operation in DATA_OPERATIONS else "control"
        found = _rules().resolve_endpoint(
            Region=region,
            UseDualStack=False,
            UseFIPS=False,
            OperationType=plane,
            **named,
        )
        url = str(found.url)
    return Destination(url, region, "kinesis")


def plain_endpoint(url: str | None, region: str) -> FindEndpoint | None:
    """Return a function that finds Kinesis's endpoint for a call.

    Return None if only aiobotocore can find or refuse the endpoint.
    """
    if not _REGION.fullmatch(region):
        return None
    find = partial(_find_endpoint, url, region)
    if url is None:
        return find if _are_rules_known(find) else None
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    is_whole = not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not (is_valid and is_whole):
        return None
    return find


def _are_rules_known(find: FindEndpoint) -> bool:
    """Return whether this version of botocore applies its rules as expected.

    The rules are data of AWS. Botocore may change the classes that apply the rules.
    """
    try:
        url = find("ListShards", {}).url
    except (BotoCoreError, ImportError, AttributeError, LookupError, TypeError):
        return False
    return urlsplit(url).scheme == "https"


@cache
def _rules() -> Any:
    # Imported late: with an endpoint of the user's, the import of 0.05 s can be saved.
    from botocore.endpoint_provider import EndpointProvider
    from botocore.loaders import create_loader

    rules = create_loader().load_service_model("kinesis", "endpoint-rule-set-1")
    return EndpointProvider(rules, partition_data())


@cache
def user_agent() -> str:
    """Return the user agent of all calls."""
    # Without this, botocore would build a user agent twice in each call, which takes a
    # sixth of the call's time.
    packages = ("kinesumer", "aiobotocore", "botocore")
    return " ".join(f"{package}/{package_version(package)}" for package in packages)
