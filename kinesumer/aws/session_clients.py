"""Create clients of aiobotocore from the user's session, or from a new one.

This module and those that it imports take 0.3 s of CPU time to import. So
``session.py`` imports it only when a client of aiobotocore is needed.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiobotocore.config import AioConfig
from botocore.utils import get_environ_proxies

from kinesumer.aws.endpoints import (
    check_port,
    remember_passwords,
    require_no_credentials,
)
from kinesumer.aws.errors import Kind, failure_of, foreign, no_credentials
from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.key_sources import SessionKeys
from kinesumer.aws.limits import (
    CONNECT_SECONDS,
    OTHER_CONNECTIONS,
    READ_SECONDS,
    user_agent,
)
from kinesumer.aws.settings import Settings, new_session
from kinesumer.errors import (
    ConfigurationError,
    KinesumerError,
    SourceUnavailableError,
)
from kinesumer.runtime.refusals import is_refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aiobotocore.session import AioSession

    from kinesumer.aws.credentials import SigningKeys
    from kinesumer.aws.http.addresses import AddressCache
    from kinesumer.aws.key_use import KeyUse


class SessionClients:
    """Creates clients with the settings of the user's session, or of a new session.

    For services that ``endpoints`` lacks, the endpoint comes from the session.
    ``max_connections`` limits the connections that read and put records.
    """

    def __init__(
        self,
        session: object | None,
        addresses: AddressCache,
        endpoints: Mapping[str, str | None],
        max_connections: int,
    ) -> None:
        self._resolver = Resolver(addresses)
        # The type is Any, since ``Settings`` checks the methods of the user's object.
        self._session: Any = new_session(self._resolver) if session is None else session
        self._settings = Settings(self._session)
        self._endpoints, self._max_connections = endpoints, max_connections

    @property
    def region(self) -> str | None:
        """The session's region."""
        try:
            return self._settings.region
        except foreign() as error:
            raise _refused(error) from error

    def keys(self) -> SessionKeys:
        """Return the source of the session's own keys."""
        return SessionKeys(self._session)

    def session(self, keys: SigningKeys) -> AioSession:
        """Return a session with the user's settings and the given keys."""
        return self._settings.session(keys)

    @asynccontextmanager
    async def connected(
        self,
        session: AioSession,
        use: KeyUse,
        service: str,
        region: str | None,
        *,
        other_loop: AddressCache | None = None,
    ) -> AsyncIterator[Any]:
        """Open a client for the block. Raise ConfigurationError if that fails.

        ``other_loop`` has the addresses of a loop other than the session's, on which
        the client runs.
        """
        resolver = Resolver(other_loop) if other_loop else self._resolver
        own = limits(service, self._max_connections)
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(
                    session.create_client(
                        service,
                        region_name=region,
                        endpoint_url=self._endpoints.get(service),
                        config=self._settings.config(
                            own, resolver, other_loop=other_loop is not None
                        ),
                    )
                )
            except ValueError as error:
                # Don't chain the error: its text has the malformed endpoint, which may
                # contain a password.
                raise _refused(error) from None
            except foreign() as error:
                raise _refused(error) from error
            what = f"the endpoint of {service} (AWS_ENDPOINT_URL, or the profile's)"
            require_no_credentials(what, client.meta.endpoint_url)
            check_port(what, client.meta.endpoint_url)
            remember_passwords(_proxies(client))
            use.watch(client)
            yield client


def _proxies(client: Any) -> list[str]:
    """Return the URLs of the proxies that a client may use."""
    configured = client.meta.config.proxies
    if configured is None:
        configured = get_environ_proxies(client.meta.endpoint_url)
    return [url for url in configured.values() if url]


def limits(service: str, max_connections: int = 0) -> AioConfig:
    """Return the settings of a client that override the user's settings.

    The client doesn't retry, since the engine does. A Kinesis client may open
    ``max_connections`` more connections, since readers may call Kinesis through it.
    """
    reading = max_connections if service == "kinesis" else 0
    return AioConfig(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS[service],
        max_pool_connections=OTHER_CONNECTIONS + reading,
        tcp_keepalive=True,
        user_agent=user_agent(),
    )


def _refused(error: Exception) -> KinesumerError:
    fault = failure_of(error)
    if is_refusal(error):
        return SourceUnavailableError(f"can't create an AWS client: {fault.text}")
    if fault.kind is Kind.NO_CREDENTIALS:
        return no_credentials(fault)
    return ConfigurationError(
        f"can't create an AWS client: {fault.text}; correct the session's settings"
    )
