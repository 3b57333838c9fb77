"""Serve Kinesis, DynamoDB and STS on one local endpoint, for tests and demos.

This needs the extra ``kinesumer[local]``. Importing this package doesn't import moto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinesumer.local.kinesis.limits import UNTHROTTLED, Limits
    from kinesumer.local.request import AwsError
    from kinesumer.local.server import EmbeddedAws, background, serve

__all__ = ["UNTHROTTLED", "AwsError", "EmbeddedAws", "Limits", "background", "serve"]

_HOMES = {
    "AwsError": "kinesumer.local.request",
    "EmbeddedAws": "kinesumer.local.server",
    "Limits": "kinesumer.local.kinesis.limits",
    "UNTHROTTLED": "kinesumer.local.kinesis.limits",
    "background": "kinesumer.local.server",
    "serve": "kinesumer.local.server",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
