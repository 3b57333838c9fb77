"""Hold a client of aiobotocore, or the parts with which calls are made without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
