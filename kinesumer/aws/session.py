"""Open AWS clients from a new session, or from an aiobotocore or aioboto3 session."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from aiobotocore.config import AioConfig
from botocore.utils import get_environ_proxies

from kinesumer.aws.credentials import BorrowedKeys, Keyring
from kinesumer.aws.endpoints import (
    check_port,
    remember_passwords,
    require_no_credentials,
)
from kinesumer.aws.errors import FOREIGN, Kind, describe, failure_of, no_credentials
from kinesumer.aws.http.pool import ConnectionPool
from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.http.subscriptions import EventStreamPool
from kinesumer.aws.key_sources import Role, RoleKeys, SessionKeys
from kinesumer.aws.key_trouble import KeyTrouble
from kinesumer.aws.key_use import KeyUse
from kinesumer.aws.settings import Settings, new_session
from kinesumer.config import MAX_CONNECTIONS
from kinesumer.errors import (
    ConfigurationError,
    KinesumerError,
    SourceUnavailableError,
)
from kinesumer.runtime.refusals import is_refusal
from kinesumer.runtime.versions import package_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from aiobotocore.session import AioSession

    from kinesumer.aws.credentials import KeySource, SigningKeys

    # Opens a separate client on an event loop other than the factory's. The other loop
    # must enter the context manager.
    Loan = Callable[[], AbstractAsyncContextManager["OpenClient"]]

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


class OpenClient(NamedTuple):
    """A client, its credentials, and a pool for requests that bypass the client."""

    client: Any
    credentials: SigningKeys
    keys: KeyUse
    connections: ConnectionPool


class ClientFactory:
    """Opens the AWS clients of one event loop on demand, and closes them together.

    ``endpoints`` maps services to URLs. For other services, the endpoint comes from the
    session. ``max_connections`` limits the connections that read and put records.

    With ``trusted``, the clients belong to a program that has already used its
    credentials. So missing or refused credentials are an outage, and not an error that
    opening a client raises. ``on_trouble`` is called with a text while credentials are
    refused or can't be renewed, and with an empty text at the end.
    """

    def __init__(
        self,
        session: object | None = None,
        *,
        region: str | None = None,
        role_session_name: str = "kinesumer",
        now: Callable[[], float] = time.monotonic,
        endpoints: Mapping[str, str | None] = MappingProxyType({}),
        max_connections: int = MAX_CONNECTIONS,
        trusted: bool = False,
        on_trouble: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._resolver = Resolver()
        # The type is Any, since ``Settings`` checks the methods of the user's object.
        self._session: Any = new_session(self._resolver) if session is None else session
        self._settings = Settings(self._session)
        self._region = region
        self._role_session_name = role_session_name
        self._now = now
        self._max_connections = max_connections
        self._connections = ConnectionPool(
            CONNECT_SECONDS,
            READ_SECONDS["kinesis"],
            max_connections,
            self._resolver.addresses,
        )
        self._store_connections = _store_connections(self._resolver)
        # The connections of subscriptions. ``max_connections`` does not limit them.
        self.event_streams: EventStreamPool = EventStreamPool(
            CONNECT_SECONDS, self._resolver.addresses
        )
        self._endpoints = endpoints
        self._stack = AsyncExitStack()
        self._users = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._trusted, self._on_trouble = trusted, on_trouble
        self._troubles: dict[str, str] = {}  # by the source of the credentials
        self._own = self._keyring("the session", SessionKeys(self._session))
        self._own_session: AioSession | None = None
        self._roles: dict[Role, tuple[AioSession, Keyring]] = {}
        self._clients: dict[tuple[str, str | None, Role | None], OpenClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._users.aclose()
        for keyring in (self._own, *(keyring for _, keyring in self._roles.values())):
            await keyring.close()
        self._clients.clear()
        await self._connections.close()
        await self._store_connections.close()
        await self.event_streams.close()
        await self._stack.aclose()

    def at_exit(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call a function when the factory closes, before its clients close."""
        self._users.push_async_callback(close)

    @property
    def region(self) -> str | None:
        """The region that was passed to the factory, or else the session's region."""
        if self._region is None:
            try:
                self._region = self._settings.region
            except FOREIGN as error:
                raise _refused(error) from error
        return self._region

    def role(
        self, arn: str, external_id: str | None = None, session_name: str | None = None
    ) -> Role:
        """Return a role to assume. Without a session name, use the default name.

        Raise ConfigurationError if the ARN isn't a role's.
        """
        if not _ROLE.fullmatch(arn):
            raise ConfigurationError(
                f"{arn!r} isn't the ARN of a role: use arn:aws:iam::ACCOUNT:role/NAME"
            )
        name = session_name or role_session_name(self._role_session_name)
        return Role(arn, name, external_id)

    async def open(
        self, service: str, region: str | None = None, role: Role | None = None
    ) -> OpenClient:
        """Return the shared client for a service, region and role.

        Raise CredentialsError if the standard chain has no credentials or region.
        """
        key = (service, region or self.region, role)
        async with self._lock:
            if key not in self._clients:
                self._clients[key] = await self._open(*key)
            return self._clients[key]

    async def _open(
        self, service: str, region: str | None, role: Role | None
    ) -> OpenClient:
        session, keyring = await self._owner(), self._own
        if role is not None:
            session, keyring = self._assumed(role, session)
        use = KeyUse(keyring, trusted=self._trusted)
        connected = self._connected(session, use, service, region)
        client = await self._stack.enter_async_context(connected)
        pool = self._connections
        if service == "dynamodb":
            pool = self._store_connections
        return OpenClient(client, keyring, use, pool)

    @asynccontextmanager
    async def _connected(
        self,
        session: AioSession,
        use: KeyUse,
        service: str,
        region: str | None,
        *,
        other_loop: Resolver | None = None,
    ) -> AsyncIterator[Any]:
        """Open a client for the block. Raise ConfigurationError if that fails.

        ``other_loop`` is the resolver of a loop other than the factory's, on which the
        client runs.
        """
        resolver = other_loop or self._resolver
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
            except FOREIGN as error:
                raise _refused(error) from error
            what = f"the endpoint of {service} (AWS_ENDPOINT_URL, or the profile's)"
            require_no_credentials(what, client.meta.endpoint_url)
            check_port(what, client.meta.endpoint_url)
            remember_passwords(_proxies(client))
            use.watch(client)
            yield client

    def _assumed(self, role: Role, owner: AioSession) -> tuple[AioSession, Keyring]:
        if role not in self._roles:
            use = KeyUse(self._own, trusted=self._trusted)

            def sts() -> AbstractAsyncContextManager[Any]:
                return self._connected(owner, use, "sts", self.region)

            keyring = self._keyring(role.arn, RoleKeys(role, sts, use))
            self._roles[role] = (self._settings.session(keyring), keyring)
        return self._roles[role]

    def _keyring(self, name: str, source: KeySource) -> Keyring:
        trouble = KeyTrouble(name, self._now, self._note_trouble)
        return Keyring(source, trouble, self._now)

    def _note_trouble(self, source: str, text: str) -> None:
        if text:
            self._troubles[source] = text
        else:
            self._troubles.pop(source, None)
        self._on_trouble("; ".join(self._troubles.values()))

    async def _owner(self) -> AioSession:
        """Return a session with the user's credentials.

        Raise CredentialsError if there are none, unless the program is trusted.
        """
        if self._own_session is None:
            if not self._trusted:
                try:
                    await self._own.load()
                except KinesumerError:
                    raise
                except Exception as error:
                    fault = failure_of(error)
                    if fault.kind is not Kind.NO_CREDENTIALS:
                        fault = fault._replace(text=describe(fault))
                    raise no_credentials(fault) from error
            self._own_session = self._settings.session(self._own)
        return self._own_session

    async def lend(self) -> Loan:
        """Return a function with which another thread can open a DynamoDB client.

        Raise CredentialsError if the standard chain has no credentials.
        """
        # The other thread needs keys even if this loop is blocked.
        await self._owner()
        keys = BorrowedKeys(self._own, asyncio.get_running_loop(), self._now)
        return partial(self._lent, keys)

    @asynccontextmanager
    async def _lent(self, keys: BorrowedKeys) -> AsyncIterator[OpenClient]:
        session, resolver = self._settings.session(keys), Resolver()
        use, pool = KeyUse(keys), _store_connections(resolver)
        try:
            async with self._connected(
                session, use, "dynamodb", self.region, other_loop=resolver
            ) as client:
                yield OpenClient(client, keys, use, pool)
        finally:
            await pool.close()


def _proxies(client: Any) -> list[str]:
    """Return the URLs of the proxies that a client may use."""
    configured = client.meta.config.proxies
    if configured is None:
        configured = get_environ_proxies(client.meta.endpoint_url)
    return [url for url in configured.values() if url]


def _store_connections(resolver: Resolver) -> ConnectionPool:
    return ConnectionPool(
        CONNECT_SECONDS,
        READ_SECONDS["dynamodb"],
        OTHER_CONNECTIONS,
        resolver.addresses,
    )


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
        user_agent=_user_agent(),
    )


@cache
def _user_agent() -> str:
    # Without this, botocore would build a user agent twice in each call, which takes a
    # sixth of the call's time.
    packages = ("kinesumer", "aiobotocore", "botocore")
    return " ".join(f"{package}/{package_version(package)}" for package in packages)


_ROLE = re.compile(r"arn:[^:\s]+:iam::[^:\s]+:role/\S+")


def role_session_name(text: str) -> str:
    """Convert text to a session name that STS accepts.

    The name has 2 to 64 characters, all of them in [A-Za-z0-9_+=,.@-].
    """
    return re.sub(r"[^A-Za-z0-9_+=,.@-]", "-", text)[:64].ljust(2, "-")


def _refused(error: Exception) -> KinesumerError:
    fault = failure_of(error)
    if is_refusal(error):
        return SourceUnavailableError(f"can't create an AWS client: {fault.text}")
    if fault.kind is Kind.NO_CREDENTIALS:
        return no_credentials(fault)
    return ConfigurationError(
        f"can't create an AWS client: {fault.text}; correct the session's settings"
    )


def _without_keys(error: Exception) -> KinesumerError:
    fault = failure_of(error)
    if is_refusal(error):
        return SourceUnavailableError(f"can't get AWS credentials: {describe(fault)}")
    if fault.kind is not Kind.NO_CREDENTIALS:
        fault = fault._replace(text=describe(fault))
    return no_credentials(fault)
