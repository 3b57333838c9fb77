"""The settings of the user's session, for clients that it doesn't make itself.

A heartbeat and a role need credentials of their own. So that no client can differ in
anything else, all are made alike: by a session of ours that has the user's settings.
"""

from __future__ import annotations

import copy
import logging
import os
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from kinesumer.aws.credentials import FixedProvider
from kinesumer.aws.http.resolver import Resolver
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from botocore.loaders import Loader

    from kinesumer.aws.credentials import Credentials


LOGGER = logging.getLogger("kinesumer")

SHARED = ("config_store", "data_loader")
"""Components that hold variables, profile and definitions of services."""
LIBRARIES = ("aiobotocore", "aioboto3", "boto3", "botocore")
OF_ONE_LOOP = (aiohttp.ThreadedResolver, aiohttp.AsyncResolver, Resolver)
"""Resolvers that work on no other event loop than the one that made them."""


class Settings:
    """What a user's session would tell each client: configuration, profile and hooks.

    Raises ConfigurationError for what isn't an asynchronous session.
    """

    def __init__(self, session: object) -> None:
        # aiobotocore says create_client, aioboto3 says client.
        create = getattr(session, "create_client", getattr(session, "client", None))
        if not callable(create) or not hasattr(session, "get_credentials"):
            raise ConfigurationError(
                f"session is a {type(session).__name__}, neither an aiobotocore nor an "
                "aioboto3 session"
            )
        self._session: Any = session
        self._inner = _inner(session)
        self._default = None
        if self._inner is not None:
            self._default = self._inner.get_default_client_config()
        made_by = getattr(create, "__module__", None) or ""
        if self._inner is None or made_by.partition(".")[0] not in LIBRARIES:
            LOGGER.warning(
                "session is a %s: its own way of making clients isn't used, only its "
                "credentials, profile and settings; give endpoints by AWS_ENDPOINT_URL",
                type(session).__name__,
            )

    @property
    def region(self) -> str | None:
        """The region of the session's clients, else that of ``AWS_REGION``."""
        region = getattr(self._default, "region_name", None)
        if region is None and self._inner is not None:
            region = self._inner.get_config_variable("region")
        elif region is None:
            region = getattr(self._session, "region_name", None)
        return cast("str | None", region or os.environ.get("AWS_REGION") or None)

    def session(self, credentials: Credentials) -> AioSession:
        """Return a session with these settings and other credentials."""
        if self._inner is None:
            made = AioSession(profile=_profile(self._session))
        else:
            made = AioSession()
            for name in SHARED:
                made.register_component(name, self._inner.get_component(name))
            # A copy, as each client gets one: it may be read on another thread.
            hooks = copy.copy(self._inner.get_component("event_emitter"))
            made.register_component("event_emitter", hooks)
        made.register_component("credential_provider", FixedProvider(credentials))
        return made

    def config(
        self, limits: AioConfig, resolver: Resolver, *, elsewhere: bool = False
    ) -> AioConfig:
        """Return the configuration of one client: the user's, but for ``limits``.

        ``resolver`` looks hosts up unless the user gave another one. ``elsewhere``
        tells that the client belongs to another event loop than the session.
        """
        theirs = AioConfig() if self._default is None else self._default
        made = AioConfig().merge(theirs).merge(limits)
        # What aiohttp is told is left out by some versions of merge().
        kind = getattr(theirs, "http_session_cls", made.http_session_cls)
        connector = {**made.connector_args, **getattr(theirs, "connector_args", {})}
        if elsewhere and isinstance(connector.get("resolver"), OF_ONE_LOOP):
            del connector["resolver"]
        if issubclass(kind, AIOHTTPSession):
            connector.setdefault("resolver", resolver)
        made.http_session_cls, made.connector_args = kind, connector
        return made


def new_session(resolver: Resolver) -> AioSession:
    """Return a session of the environment, in which ``AWS_REGION`` goes first."""
    session = AioSession()
    # For the clients that it fetches credentials with.
    session.set_default_client_config(AioConfig(connector_args={"resolver": resolver}))
    if os.environ.get("AWS_REGION"):
        session.set_config_variable("region", os.environ["AWS_REGION"])
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


def _inner(session: Any) -> AioSession | None:
    """Return aiobotocore's session: what is given, or what aioboto3 keeps in it."""
    for found in (session, getattr(session, "_session", None)):
        if isinstance(found, AioSession):
            return found
    return None


def _profile(session: Any) -> str | None:
    # aioboto3 says "default" where none was chosen, which botocore would then demand.
    name = getattr(session, "profile_name", None) or getattr(session, "profile", None)
    return None if name == "default" else name
