"""Consume Amazon Kinesis streams together: many processes, one DynamoDB table."""

from typing import TYPE_CHECKING

from kinesumer.errors import (
    AccessDeniedError,
    ClientIdInUseError,
    CommitTimeoutError,
    ConfigurationError,
    CorruptRowError,
    CredentialsError,
    DataLossError,
    DeadLetterNotStoredError,
    FatalError,
    GroupBusyError,
    HandlerFailedError,
    InvalidPositionError,
    KinesumerError,
    ShardsLostError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Record
from kinesumer.model.streams import ShardKey, Start, Stream

if TYPE_CHECKING:
    from kinesumer import blocking as blocking
    from kinesumer import dead_letters as dead_letters
    from kinesumer import local as local
    from kinesumer.client import Kinesumer
    from kinesumer.config import Config
    from kinesumer.consuming.records import Records
    from kinesumer.handlers import Middleware, RetryPolicy
    from kinesumer.model.batch import Batch
else:
    # Not imported at once: Spark starts many processes that only need a subpackage.
    _MODULES = {
        "Batch": "model.batch",
        "Config": "config",
        "Kinesumer": "client",
        "Middleware": "handlers",
        "Records": "consuming.records",
        "RetryPolicy": "handlers",
    }

    def __getattr__(name: str) -> object:
        """Import a public name or subpackage when it is first asked for."""
        from importlib import import_module

        if name in ("blocking", "dead_letters", "local"):
            return import_module(f"{__name__}.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES[name]}")
        value = globals()[name] = getattr(module, name)
        return value

    def __dir__() -> list[str]:
        """Return all public names, imported yet or not."""
        return sorted({*globals(), *__all__, "blocking", "dead_letters", "local"})


__all__ = [
    "AccessDeniedError",
    "Batch",
    "ClientIdInUseError",
    "CommitTimeoutError",
    "Config",
    "ConfigurationError",
    "CorruptRowError",
    "CredentialsError",
    "DataLossError",
    "DeadLetterNotStoredError",
    "FatalError",
    "Fence",
    "GroupBusyError",
    "HandlerFailedError",
    "InvalidPositionError",
    "Kinesumer",
    "KinesumerError",
    "Middleware",
    "Position",
    "Record",
    "Records",
    "RetryPolicy",
    "ShardKey",
    "ShardsLostError",
    "Start",
    "StateStoreMissingError",
    "StateStoreRecreatedError",
    "Stream",
    "StreamMissingError",
    "StreamRecreatedError",
]
