"""Apply the settings of the user's session to clients that the library creates.

Clients for heartbeats and clients with a role need other credentials than the user's
session has. So the library creates all clients from its own sessions. These have the
user's settings, and differ only in their credentials.
"""

from __future__ import annotations

import copy
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.credentials import AioCredentials
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from kinesumer.aws.http.resolver import Resolver
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.loaders import Loader

    from kinesumer.aws.credentials import FrozenCredentials, SigningKeys


LOGGER = logging.getLogger("kinesumer")

# The components that all sessions share with the user's session: its variables and
# profile, and the definitions of AWS's services.
SHARED = ("config_store", "data_loader")
LIBRARIES = ("aiobotocore", "aioboto3", "boto3", "botocore")
# Resolvers that work only on the event loop that created them.
OF_ONE_LOOP = (aiohttp.ThreadedResolver, aiohttp.AsyncResolver, Resolver)


class Settings:
    """The configuration, profile and hooks of a user's session.

    Raise ConfigurationError if the session isn't asynchronous.
    """

    def __init__(self, session: object) -> None:
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
            LOGGER.warning(
                "session is a %s: only its credentials, profile and settings are used, "
                "not its method to create clients; set endpoints by AWS_ENDPOINT_URL",
                type(session).__name__,
            )

    @property
    def region(self) -> str | None:
        """The region of the session's clients, or else ``AWS_REGION``."""
        region = getattr(self._default, "region_name", None)
        if region is None and self._inner is not None:
            region = self._inner.get_config_variable("region")
        elif region is None:
            region = getattr(self._session, "region_name", None)
        return cast("str | None", region or os.environ.get("AWS_REGION") or None)

    def session(self, keys: SigningKeys) -> AioSession:
        """Return a session with these settings and the given keys."""
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

    def config(
        self, limits: AioConfig, resolver: Resolver, *, other_loop: bool = False
    ) -> AioConfig:
        """Return the configuration of one client: the user's, overridden by ``limits``.

        ``resolver`` is used unless the user configured another one. With
        ``other_loop``, the client runs on a loop other than the session's.
        """
        theirs = AioConfig() if self._default is None else self._default
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
        return await self._keys.get_account_id()


def new_session(resolver: Resolver) -> AioSession:
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


def inner_session(session: Any) -> AioSession | None:
    """Return the aiobotocore session: the argument, or the one that aioboto3 wraps."""
    for candidate in (session, getattr(session, "_session", None)):
        if isinstance(candidate, AioSession):
            return candidate
    return None


def _profile(session: Any) -> str | None:
    # If the user named no profile, aioboto3 reports "default". Botocore would fail if
    # no profile has this name.
    name = getattr(session, "profile_name", None) or getattr(session, "profile", None)
    return None if name == "default" else name
