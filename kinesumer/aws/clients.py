"""Hold a client, or the parts with which calls are made without it, and its limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.runtime.extras import package_version

if TYPE_CHECKING:
    from kinesumer.aws.credentials import SigningKeys
    from kinesumer.aws.http.pool import ConnectionPool
    from kinesumer.aws.key_use import KeyUse
    from kinesumer.aws.kinesis_endpoints import KinesisEndpoint


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

    endpoint: KinesisEndpoint
    credentials: SigningKeys
    keys: KeyUse
    connections: ConnectionPool
    others: ConnectionPool
    library_client: Callable[[], Awaitable[Any]]
    """Returns a client of aiobotocore, for calls that are not made directly."""


CONNECT_SECONDS = 3.0
READ_SECONDS = {
    "kinesis": 10.0,
    "dynamodb": 2.0,
    "sts": 5.0,
    "sqs": 10.0,
    "s3": 30.0,
    "glue": 5.0,
}
# Limit of each client's connections. For Kinesis, ``max_connections`` is added to it.
OTHER_CONNECTIONS = 128


@cache
def user_agent() -> str:
    """Return the user agent of all calls."""
    # Without this, botocore would build a user agent twice in each call, which takes a
    # sixth of the call's time.
    packages = ("kinesumer", "aiobotocore", "botocore")
    return " ".join(f"{package}/{package_version(package)}" for package in packages)
