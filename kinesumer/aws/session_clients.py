"""Create clients of aiobotocore from the user's session, or from a new one.

Clients for heartbeats and clients with a role need other credentials than the user's
session has. So the library creates all clients from its own sessions. These have the
user's settings, and differ only in their credentials.

This module and those that it imports take 0.3 s of CPU time to import. So
``session.py`` imports it only when a client of aiobotocore is needed.
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.loaders import Loader, create_loader
from botocore.utils import get_environ_proxies

from kinesumer.aws.clients import (
    CONNECT_SECONDS,
    OTHER_CONNECTIONS,
    READ_SECONDS,
    user_agent,
)
from kinesumer.aws.credentials import FrozenCredentials, KeyUse, SigningKeys
from kinesumer.aws.endpoints import (
    check_port,
    remember_passwords,
    require_no_credentials,
)
from kinesumer.aws.errors import Kind, failure_of, foreign, no_credentials
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.key_sources import LIBRARIES, SessionKeys, inner_session
from kinesumer.errors import ConfigurationError, KinesumerError, SourceUnavailableError
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import is_refusal

# The components that all sessions share with the user's session: its variables and
# profile, and the definitions of AWS's services.
SHARED = ("config_store", "data_loader")
# Resolvers that work only on the event loop that created them.
OF_ONE_LOOP = (aiohttp.ThreadedResolver, aiohttp.AsyncResolver, Resolver)


class SessionClients:
    """Creates clients with the settings of the user's session, or of a new session.

    These are its configuration, profile and hooks. For services that ``endpoints``
    lacks, the endpoint comes from the session. ``max_connections`` limits the
    connections that read and put records.

    Raise ConfigurationError if the session isn't asynchronous.
    """

    def __init__(
        self,
        session: object | None,
        addresses: AddressCache,
        endpoints: Mapping[str, str | None],
        max_connections: int,
    ) -> None:
        self._resolver = Resolver(addresses)
        self._endpoints, self._max_connections = endpoints, max_connections
        if session is None:
            session = _new_session(self._resolver)
        # aiobotocore names the method create_client, and aioboto3 names it client.
        create = getattr(session, "create_client", getattr(session, "client", None))
        if not callable(create) or not hasattr(session, "get_credentials"):
            raise ConfigurationError(
                f"session is a {type(session).__name__}: pass an aiobotocore or "
                "aioboto3 session"
            )
        self._session: Any = session
        self._inner = inner_session(session)
        self._default = None
        if self._inner is not None:
            self._default = self._inner.get_default_client_config()
        made_by = getattr(create, "__module__", None) or ""
        if self._inner is None or made_by.partition(".")[0] not in LIBRARIES:
            logger.warning(
                "session is a %s: only its credentials, profile and settings are used, "
                "not its method to create clients; set endpoints by AWS_ENDPOINT_URL",
                type(session).__name__,
            )

    @property
    def region(self) -> str | None:
        """The region of the session's clients, or else ``AWS_REGION``."""
        region = getattr(self._default, "region_name", None)
        try:
            if region is None and self._inner is not None:
                region = self._inner.get_config_variable("region")
            elif region is None:
                region = getattr(self._session, "region_name", None)
        except foreign() as error:
            raise _refused(error) from error
        return cast("str | None", region or os.environ.get("AWS_REGION") or None)

    def keys(self) -> SessionKeys:
        """Return the source of the session's own keys."""
        return SessionKeys(self._session)

    def session(self, keys: SigningKeys) -> AioSession:
        """Return a session with the user's settings and the given keys."""
        if self._inner is None:
            made = AioSession(profile=_profile(self._session))
        else:
            # The hooks that are copied below include botocore's own hooks. To register
            # these again would take 6 ms.
            made = AioSession(include_builtin_handlers=False)
            for name in SHARED:
                made.register_component(name, self._inner.get_component(name))
            # Copy the hooks, since another thread may read the originals. Botocore
            # copies them again for each client.
            hooks = copy.copy(self._inner.get_component("event_emitter"))
            made.register_component("event_emitter", hooks)
        provider = FixedProvider(_Credentials(keys))
        made.register_component("credential_provider", provider)
        return made

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
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(
                    session.create_client(
                        service,
                        region_name=region,
                        endpoint_url=self._endpoints.get(service),
                        config=self.config(
                            service, resolver, other_loop=other_loop is not None
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

    def config(
        self, service: str, resolver: Resolver, *, other_loop: bool = False
    ) -> AioConfig:
        """Return the configuration of one client: the user's, with our limits.

        ``resolver`` is used unless the user configured another one. With
        ``other_loop``, the client runs on a loop other than the session's.
        """
        theirs = AioConfig() if self._default is None else self._default
        limits = _limits(service, self._max_connections)
        made = AioConfig().merge(theirs).merge(limits)
        # In some versions of aiobotocore, merge() loses the arguments for aiohttp.
        kind = getattr(theirs, "http_session_cls", made.http_session_cls)
        connector = {**made.connector_args, **getattr(theirs, "connector_args", {})}
        if other_loop and isinstance(connector.get("resolver"), OF_ONE_LOOP):
            del connector["resolver"]
        if issubclass(kind, AIOHTTPSession):
            connector.setdefault("resolver", resolver)
        made.http_session_cls, made.connector_args = kind, connector
        return made


def _proxies(client: Any) -> list[str]:
    """Return the URLs of the proxies that a client may use."""
    configured = client.meta.config.proxies
    if configured is None:
        configured = get_environ_proxies(client.meta.endpoint_url)
    return [url for url in configured.values() if url]


def _limits(service: str, max_connections: int) -> AioConfig:
    """Return the settings of a client that override the user's settings.

    The client doesn't retry, since the engine does. A client of streams may open
    ``max_connections`` more connections, since readers may call through it.
    """
    reading = max_connections if service in ("kinesis", "dynamodbstreams") else 0
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


class FixedProvider:
    """A session's source of credentials, which always returns the same ones."""

    def __init__(self, credentials: AioCredentials) -> None:
        self._credentials = credentials

    async def load_credentials(self) -> AioCredentials:
        """Return the credentials."""
        return self._credentials


class _Credentials(AioCredentials):  # type: ignore[misc]
    """Lets the clients of a session sign with a client's keys."""

    def __init__(self, keys: SigningKeys) -> None:
        super().__init__("", "", method=keys.method)
        self._keys = keys

    async def get_frozen_credentials(self) -> FrozenCredentials:
        """Return the keys in use."""
        return await self._keys.get_frozen_credentials()

    async def get_account_id(self) -> str | None:
        """Return the account of the keys, or None if the source doesn't say it."""
        return (await self._keys.get_frozen_credentials()).account_id


def _new_session(resolver: Resolver) -> AioSession:
    """Return a session with the environment's settings. ``AWS_REGION`` has priority."""
    session = AioSession()
    # The session itself creates clients to fetch credentials. They use this resolver.
    session.set_default_client_config(AioConfig(connector_args={"resolver": resolver}))
    if os.environ.get("AWS_REGION"):
        session.set_config_variable("region", os.environ["AWS_REGION"])
    # Load the definitions later, as botocore does. Reading the variable fails if the
    # profile doesn't exist, and this error is only handled when a client is created.
    session.lazy_register_component(
        "data_loader",
        lambda: _definitions(session.get_config_variable("data_path")),
    )
    return session


@cache
def _definitions(data_path: str | None) -> Loader:
    # Share the definitions. Sessions have reference cycles, so that only a full garbage
    # collection frees them: each new client would add 14 MB until then.
    return create_loader(data_path)


def _profile(session: Any) -> str | None:
    # If the user named no profile, aioboto3 reports "default". Botocore would fail if
    # no profile has this name.
    name = getattr(session, "profile_name", None) or getattr(session, "profile", None)
    return None if name == "default" else name


# The events of a call at which botocore runs hooks.
EVENTS = (
    "provide-client-params",
    "before-parameter-build",
    "before-endpoint-resolution",
    "before-call",
    "request-created",
    "choose-signer",
    "before-sign",
    "before-send",
    "response-received",
    "before-parse",
    "needs-retry",
    "after-call",
    "after-call-error",
)
# Packages whose hooks direct calls may skip. The user didn't write these hooks, and
# moto's hook has no effect on aiobotocore.
UNOBSERVED = (*LIBRARIES, "kinesumer", "moto")
# The arguments for aiohttp that a client has even if the user has set none.
USUAL_SETTINGS = {"keepalive_timeout", "resolver"}


def is_hooked(events: Any, service: str, operation: str) -> bool:
    """Return whether the user has registered hooks for an operation of a service."""
    handlers = events._emitter._handlers
    return any(
        _module(handler).partition(".")[0] not in UNOBSERVED
        for event in EVENTS
        for handler in handlers.prefix_search(f"{event}.{service}.{operation}")
    )


def has_usual_settings(client: Any, url: str) -> bool:
    """Return whether the user has set neither a proxy nor connection settings."""
    config = client.meta.config
    connector = config.connector_args
    proxies = config.proxies
    if proxies is None:
        proxies = get_environ_proxies(url)
    return (
        isinstance(client._endpoint.http_session, AIOHTTPSession)
        and set(connector) <= USUAL_SETTINGS
        and isinstance(connector.get("resolver"), Resolver)
        and not proxies.get(urlsplit(url).scheme)
    )


def _module(handler: object) -> str:
    return getattr(handler, "__module__", None) or type(handler).__module__
