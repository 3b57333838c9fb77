"""Find hooks, a proxy or connection settings of the user in a client of aiobotocore."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from aiobotocore.httpsession import AIOHTTPSession
from botocore.utils import get_environ_proxies

from kinesumer.aws.http.resolver import Resolver
from kinesumer.aws.settings import LIBRARIES

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
