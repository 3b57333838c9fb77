"""What calls to one service need: a client of aiobotocore, or only its parts."""

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
    """What the calls to Kinesis need if they don't need a client of aiobotocore."""

    endpoint: KinesisEndpoint
    credentials: SigningKeys
    keys: KeyUse
    connections: ConnectionPool
    others: ConnectionPool
    library_client: Callable[[], Awaitable[Any]]
    """Returns a client of aiobotocore, for calls that are not made directly."""
