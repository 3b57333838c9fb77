"""Find the hooks that users have registered with a client of aiobotocore."""

from __future__ import annotations

from typing import Any

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


def is_hooked(events: Any, service: str, operation: str) -> bool:
    """Return whether the user has registered hooks for an operation of a service."""
    handlers = events._emitter._handlers
    return any(
        _module(handler).partition(".")[0] not in UNOBSERVED
        for event in EVENTS
        for handler in handlers.prefix_search(f"{event}.{service}.{operation}")
    )


def _module(handler: object) -> str:
    return getattr(handler, "__module__", None) or type(handler).__module__
