"""AWS clients from any session: its own, an aiobotocore or an aioboto3 one."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, cast

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from kinesumer.aws.connections import Connections
from kinesumer.aws.credentials import (
    Credentials,
    FixedProvider,
    LoanedCredentials,
    Role,
    RoleCredentials,
    StsClient,
    renewable,
)
from kinesumer.aws.endpoints import check_port, refuse_credentials
from kinesumer.aws.faults import FOREIGN, NOT_OBTAINED, Fault, Kind, fault_of
from kinesumer.aws.faults import no_credentials as credentials_error
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from botocore.loaders import Loader

    Create = Callable[..., AbstractAsyncContextManager[Any]]

CONNECT_SECONDS = 3.0
READ_SECONDS = {
    "kinesis": 10.0,
    "dynamodb": 2.0,
    "sts": 5.0,
    "sqs": 10.0,
    "s3": 30.0,
}
CONNECTIONS = 512
"""Per client: above any number of shards that one process reads at once."""


class Session(Protocol):
    """What is used of the user's session besides making clients."""

    async def get_credentials(self) -> Credentials | None: ...


class Opened(NamedTuple):
    """A client, its credentials, and what to do when AWS calls their keys expired.

    ``expired`` returns whether there will be new ones; ``connections`` are for calls
    that are made past the client.
    """

    client: Any
    credentials: Credentials
    expired: Callable[[], bool]
    connections: Connections


class Clients:
    """All AWS clients of one event loop: made when asked for, closed together.

    ``endpoints`` maps services to URLs; by default the session's configuration decides.
    """

    def __init__(
        self,
        session: object | None = None,
        *,
        region: str | None = None,
        role_session_name: str = "kinesumer",
        now: Callable[[], float] = time.monotonic,
        endpoints: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        self._session = _own_session() if session is None else session
        self._create = _factory(self._session)
        self._region = region
        self._role_session_name = role_session_name
        self._now = now
        self._endpoints = endpoints
        self._stack = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._credentials: Credentials | None = None
        self._roles: dict[Role, tuple[AioSession, RoleCredentials]] = {}
        self._clients: dict[tuple[str, str | None, Role | None], Opened] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clients.clear()
        await self._stack.aclose()

    @property
    def region(self) -> str | None:
        """The region given, else the session's own."""
        if self._region is None:
            self._region = _configured(lambda: _region(self._session))
        return self._region

    def role(
        self, arn: str, external_id: str | None = None, session_name: str | None = None
    ) -> Role:
        """Describe a role to assume, with the default session name if none is given.

        Raises ConfigurationError for what isn't a role's ARN.
        """
        if not _ROLE.fullmatch(arn):
            raise ConfigurationError(
                f"{arn!r} is no role's ARN; one looks like "
                "arn:aws:iam::ACCOUNT:role/NAME"
            )
        name = session_name or role_session_name(self._role_session_name)
        return Role(arn, name, external_id)

    async def open(
        self, service: str, region: str | None = None, role: Role | None = None
    ) -> Opened:
        """Return the one client for a service, region and role.

        Raises CredentialsError if the standard chain holds no credentials or region.
        """
        key = (service, region or self.region, role)
        async with self._lock:
            if key not in self._clients:
                self._clients[key] = await self._open(*key)
            return self._clients[key]

    async def _open(
        self, service: str, region: str | None, role: Role | None
    ) -> Opened:
        credentials = await self.credentials()
        create = self._create
        expired: Callable[[], bool] = partial(renewable, credentials)
        if role is not None:
            session, assumed = self._assumed(role)
            create, expired = session.create_client, assumed.forget
            credentials = assumed
        connected = self._connected(create, service, region)
        client = await self._stack.enter_async_context(connected)
        connections = Connections(CONNECT_SECONDS, READ_SECONDS[service])
        self._stack.push_async_callback(connections.close)
        return Opened(client, credentials, expired, connections)

    @asynccontextmanager
    async def _connected(
        self, create: Create, service: str, region: str | None
    ) -> AsyncIterator[Any]:
        """Make a client that is closed at the end. Raises ConfigurationError."""
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(
                    create(
                        service,
                        region_name=region,
                        endpoint_url=self._endpoints.get(service),
                        config=config(service),
                    )
                )
            except ValueError as error:
                # A malformed endpoint, which may hold a password: not shown whole.
                raise _refused(error) from None
            except FOREIGN as error:
                raise _refused(error) from error
            what = f"the endpoint of {service} (AWS_ENDPOINT_URL, or the profile's)"
            refuse_credentials(what, client.meta.endpoint_url)
            check_port(what, client.meta.endpoint_url)
            yield client

    def _assumed(self, role: Role) -> tuple[AioSession, RoleCredentials]:
        if role not in self._roles:

            def sts() -> AbstractAsyncContextManager[StsClient]:
                return self._connected(self._create, "sts", self.region)

            credentials = RoleCredentials(role, sts, self._now)
            self._roles[role] = (self._derived(credentials), credentials)
        return self._roles[role]

    async def credentials(self) -> Credentials:
        """Return the session's own credentials. Raises CredentialsError if none."""
        if self._credentials is None:
            try:
                found = cast("Session", self._session).get_credentials()
                if not inspect.isawaitable(found):
                    raise ConfigurationError(
                        f"session is a {type(self._session).__name__}, which isn't "
                        "asynchronous; pass an aiobotocore or aioboto3 session"
                    )
                self._credentials = await found
            except FOREIGN as error:
                raise _refused(error) from error
        if self._credentials is None:
            raise credentials_error(
                Fault(Kind.NO_CREDENTIALS, "NoCredentialsError", "")
            )
        return self._credentials

    async def lend(self) -> Loan:
        """Return what another thread needs to reach the state store by itself."""
        opened = await self.open("dynamodb")
        owner = await self.credentials()
        try:
            last = await owner.get_frozen_credentials()
        except FOREIGN as error:
            raise _refused(error) from error
        credentials = LoanedCredentials(owner, last, asyncio.get_running_loop())
        meta = opened.client.meta
        return Loan(
            self._derived(credentials),
            meta.region_name,
            meta.endpoint_url,
            opened.expired,
        )

    def _derived(self, credentials: Credentials) -> AioSession:
        """Make a session with the same profile's settings but other credentials."""
        session = AioSession(profile=_profile(self._session))
        session.register_component("credential_provider", FixedProvider(credentials))
        if hasattr(self._session, "get_component"):
            # Reading the services' definitions takes 40 ms: once is enough.
            loader = self._session.get_component("data_loader")
            session.register_component("data_loader", loader)
        return session


class Loan(NamedTuple):
    """Made on one event loop, opened on another: a DynamoDB client of its own."""

    session: AioSession
    region: str
    endpoint: str
    expired: Callable[[], bool]

    def open(self) -> AbstractAsyncContextManager[Any]:
        """Return the client as a context manager, to be entered on the other loop."""
        return cast(
            "AbstractAsyncContextManager[Any]",
            self.session.create_client(
                "dynamodb",
                region_name=self.region,
                endpoint_url=self.endpoint,
                config=config("dynamodb"),
            ),
        )


def config(service: str) -> AioConfig:
    """Return a client's configuration: no retries, the engine retries knowingly."""
    return AioConfig(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS[service],
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
        user_agent=_user_agent(),
    )


@cache
def _user_agent() -> str:
    # Given whole: botocore's own is put together twice for each call, a sixth of its
    # cost.
    packages = ("kinesumer", "aiobotocore", "botocore")
    return " ".join(f"{package}/{version(package)}" for package in packages)


def _own_session() -> AioSession:
    session = AioSession()
    # Looked up late, as botocore does it: what a profile lacks is reported then.
    session.lazy_register_component(
        "data_loader",
        lambda: _definitions(session.get_config_variable("data_path")),
    )
    return session


@cache
def _definitions(data_path: str | None) -> Loader:
    # Sessions are full of cycles: without sharing, each client that follows another one
    # in a process would add 14 MB, until Python's collector looks at everything.
    return create_loader(data_path)


_ROLE = re.compile(r"arn:[^:\s]+:iam::[^:\s]+:role/\S+")


def role_session_name(text: str) -> str:
    """Return text as STS allows it for a session: 2 to 64 of [A-Za-z0-9_+=,.@-]."""
    return re.sub(r"[^A-Za-z0-9_+=,.@-]", "-", text)[:64].ljust(2, "-")


def _factory(session: object) -> Create:
    # aiobotocore says create_client, aioboto3 says client; the rest is the same.
    create = getattr(session, "create_client", None) or getattr(session, "client", None)
    if not callable(create) or not hasattr(session, "get_credentials"):
        raise ConfigurationError(
            f"session is a {type(session).__name__}, neither an aiobotocore nor an "
            "aioboto3 session"
        )
    return cast("Create", create)


def _region(session: Any) -> str | None:
    if hasattr(session, "get_config_variable"):
        region = session.get_config_variable("region")
    else:
        region = session.region_name
    return cast("str | None", region)


def _profile(session: Any) -> str | None:
    # aioboto3 says "default" where none was chosen, which botocore would then demand.
    name = getattr(session, "profile_name", None) or getattr(session, "profile", None)
    return None if name == "default" else name


def _configured(read: Callable[[], str | None]) -> str | None:
    try:
        return read()
    except FOREIGN as error:
        raise _refused(error) from error


def _refused(error: Exception) -> ConfigurationError:
    fault = fault_of(error)
    if isinstance(error, NOT_OBTAINED) or fault.kind is Kind.NO_CREDENTIALS:
        return credentials_error(fault)
    return ConfigurationError(f"no AWS client can be made: {fault.text}")
