"""Tools for tests of consumers."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.testing.embedded_aws.server import EmbeddedAws, background
    from kinesumer.testing.kinesis.limits import UNTHROTTLED, Limits
    from kinesumer.testing.kinesis.requests import AwsError
    from kinesumer.testing.table_streams.settings import TableStreamSettings
    from kinesumer.testing.values import batch, record
else:
    _MODULES = {
        "AwsError": "kinesis.requests",
        "EmbeddedAws": "embedded_aws.server",
        "Limits": "kinesis.limits",
        "TableStreamSettings": "table_streams.settings",
        "UNTHROTTLED": "kinesis.limits",
        "background": "embedded_aws.server",
        "batch": "values",
        "record": "values",
    }

    def __getattr__(name: str) -> object:
        """Import a name on first use: pytest always loads the plugin here."""
        from importlib import import_module

        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "UNTHROTTLED",
    "AwsError",
    "EmbeddedAws",
    "Limits",
    "TableStreamSettings",
    "background",
    "batch",
    "record",
]
