"""Open AWS clients from a new session, or from an aiobotocore or aioboto3 session."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from kinesumer.aws.clients import (
    CONNECT_SECONDS,
    OTHER_CONNECTIONS,
    READ_SECONDS,
    OpenClient,
    PlainClient,
    plain_endpoint,
)
from kinesumer.aws.credentials import BorrowedKeys, Keyring, KeySource, KeyUse
from kinesumer.aws.errors import Kind, describe, failure_of, no_credentials
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.event_stream import EventStreamPool
from kinesumer.aws.http.pool import ConnectionPool
from kinesumer.aws.key_trouble import KeyTrouble
from kinesumer.aws.roles import Role, RoleKeys
from kinesumer.config import MAX_CONNECTIONS
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.streams import Stream

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

    from kinesumer.aws.session_clients import SessionClients


# Opens a separate client on an event loop other than the factory's. The other loop
# must enter the context manager.
Loan = Callable[[], AbstractAsyncContextManager["OpenClient"]]


class ClientFactory:
    """Opens the AWS clients of one event loop on demand, and closes them together.

    ``endpoints`` maps services to URLs. For other services, the endpoint comes from the
    session. ``max_connections`` limits the connections that read and put records.

    With ``trusted``, the clients belong to a program that has already used its
    credentials. So missing or refused credentials are an outage, and not an error that
    opening a client raises. ``on_trouble`` is called with a text while credentials are
    refused or can't be renewed, and with an empty text at the end.

    ``keys`` are the factory's keys if they are known without a session. Then no client
    of aiobotocore is created for Kinesis before a call needs it.
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
        keys: KeySource | None = None,
    ) -> None:
        self._addresses = AddressCache()
        self._region = region
        self._role_session_name = role_session_name
        self._now = now
        self._connections = _pool("kinesis", max_connections, self._addresses)
        self._others = _pool("kinesis", OTHER_CONNECTIONS, self._addresses)
        self._store_connections = _pool("dynamodb", OTHER_CONNECTIONS, self._addresses)
        # The connections of subscriptions. ``max_connections`` does not limit them.
        self.event_streams: EventStreamPool = EventStreamPool(
            CONNECT_SECONDS, self._addresses
        )
        self._endpoints = endpoints
        self._session, self._max_connections = session, max_connections
        self._known: SessionClients | None = None
        self._is_plain = keys is not None
        self._stack = AsyncExitStack()
        self._users = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._trusted, self._on_trouble = trusted, on_trouble
        self._troubles: dict[str, str] = {}  # by the source of the credentials
        source = self._library.keys() if keys is None else keys
        self._own = self._keyring("the session", source)
        self._own_session: AioSession | None = None
        self._roles: dict[Role, tuple[AioSession, Keyring]] = {}
        self._clients: dict[tuple[str, str | None, Role | None], OpenClient] = {}
        self._plain: dict[str, PlainClient] = {}  # by region

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._users.aclose()
        for keyring in (self._own, *(keyring for _, keyring in self._roles.values())):
            await keyring.close()
        self._clients.clear()
        self._plain.clear()
        await self._connections.close()
        await self._others.close()
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
            self._region = self._library.region
        return self._region

    @property
    def _library(self) -> SessionClients:
        """The object that creates clients of aiobotocore. It is made on first use."""
        if self._known is None:
            # Imported late: this takes 0.3 s of CPU time.
            from kinesumer.aws.session_clients import SessionClients

            self._known = SessionClients(
                self._session, self._addresses, self._endpoints, self._max_connections
            )
        return self._known

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

    def access(
        self, stream: Stream, named_region: str | None
    ) -> tuple[str | None, Role | None]:
        """Return the region and the role of a stream, whose ARN may name a region.

        None stands for the session's own. Raise ConfigurationError if the regions
        differ, or if the role's ARN isn't one.
        """
        if stream.region and named_region and stream.region != named_region:
            raise ConfigurationError(
                f"stream {stream.name} is in {named_region}, not in {stream.region}: "
                "correct the region or the ARN"
            )
        role = None
        if stream.role_arn is not None:
            role = self.role(stream.role_arn, stream.external_id, stream.session_name)
        return named_region or stream.region, role

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

    async def open_kinesis(
        self, region: str | None = None, role: Role | None = None
    ) -> OpenClient | PlainClient:
        """Return the shared client of Kinesis for a region and role, as ``open()``."""
        region = region or self.region
        endpoint = None
        if self._is_plain and region is not None and role is None:
            endpoint = plain_endpoint(self._endpoints.get("kinesis"), region)
        if region is None or endpoint is None:
            return await self.open("kinesis", region, role)
        if region not in self._plain:
            await self._load_keys()
            self._plain[region] = PlainClient(
                endpoint,
                self._own,
                KeyUse(self._own, trusted=self._trusted),
                self._connections,
                self._others,
                partial(self._library_client, region),
            )
        return self._plain[region]

    async def _library_client(self, region: str) -> Any:
        return (await self.open("kinesis", region)).client

    async def _open(
        self, service: str, region: str | None, role: Role | None
    ) -> OpenClient:
        session, keyring = await self._owner(), self._own
        if role is not None:
            session, keyring = self._assumed(role, session)
        use = KeyUse(keyring, trusted=self._trusted)
        connected = self._library.connected(session, use, service, region)
        client = await self._stack.enter_async_context(connected)
        pool = self._connections
        if service == "dynamodb":
            pool = self._store_connections
        return OpenClient(client, keyring, use, pool, self._others)

    def _assumed(self, role: Role, owner: AioSession) -> tuple[AioSession, Keyring]:
        if role not in self._roles:
            use = KeyUse(self._own, trusted=self._trusted)

            def sts() -> AbstractAsyncContextManager[Any]:
                return self._library.connected(owner, use, "sts", self.region)

            keyring = self._keyring(role.arn, RoleKeys(role, sts, use))
            self._roles[role] = (self._library.session(keyring), keyring)
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
            await self._load_keys()
            self._own_session = self._library.session(self._own)
        return self._own_session

    async def _load_keys(self) -> None:
        """Raise CredentialsError without keys, unless the program is trusted."""
        if self._trusted:
            return
        try:
            await self._own.load()
        except KinesumerError:
            raise
        except Exception as error:
            fault = failure_of(error)
            if fault.kind is not Kind.NO_CREDENTIALS:
                fault = fault._replace(text=describe(fault))
            raise no_credentials(fault) from error

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
        session, addresses = self._library.session(keys), AddressCache()
        use, pool = KeyUse(keys), _pool("dynamodb", OTHER_CONNECTIONS, addresses)
        try:
            async with self._library.connected(
                session, use, "dynamodb", self.region, other_loop=addresses
            ) as client:
                yield OpenClient(client, keys, use, pool, pool)
        finally:
            await pool.close()


def _pool(service: str, limit: int, addresses: AddressCache) -> ConnectionPool:
    return ConnectionPool(CONNECT_SECONDS, READ_SECONDS[service], limit, addresses)


_ROLE = re.compile(r"arn:[^:\s]+:iam::[^:\s]+:role/\S+")


def role_session_name(text: str) -> str:
    """Convert text to a session name that STS accepts.

    The name has 2 to 64 characters, all of them in [A-Za-z0-9_+=,.@-].
    """
    return re.sub(r"[^A-Za-z0-9_+=,.@-]", "-", text)[:64].ljust(2, "-")
