"""Consume Amazon Kinesis streams together: many processes, one DynamoDB table."""

from typing import TYPE_CHECKING

from kinesumer.errors import (
    AccessDeniedError,
    ClientIdInUseError,
    ClientsAliveError,
    ConfigurationError,
    CorruptLetterError,
    CorruptOffsetError,
    CorruptRowError,
    CredentialsError,
    DataLossError,
    FatalError,
    GoFleetAliveError,
    GroupHeldError,
    GroupResetError,
    HandlerFailedError,
    KinesumerError,
    LetterNotStoredError,
    LetterTooLargeError,
    PositionRefusedError,
    PositionsNotStoredError,
    ShardsLostError,
    StateStoreMissingError,
    StateStoreReplacedError,
    StateStoreSchemaError,
    StreamMissingError,
    StreamReplacedError,
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
    from kinesumer.consuming.delivery import Records
    from kinesumer.consuming.prefetch import Batch
    from kinesumer.handlers import Middleware, Retries
else:
    # Not imported at once: Spark starts many processes that only need a subpackage.
    _MODULES = {
        "Batch": "consuming.prefetch",
        "Config": "config",
        "Kinesumer": "client",
        "Middleware": "handlers",
        "Records": "consuming.delivery",
        "Retries": "handlers",
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
    "ClientsAliveError",
    "Config",
    "ConfigurationError",
    "CorruptLetterError",
    "CorruptOffsetError",
    "CorruptRowError",
    "CredentialsError",
    "DataLossError",
    "FatalError",
    "Fence",
    "GoFleetAliveError",
    "GroupHeldError",
    "GroupResetError",
    "HandlerFailedError",
    "Kinesumer",
    "KinesumerError",
    "LetterNotStoredError",
    "LetterTooLargeError",
    "Middleware",
    "Position",
    "PositionRefusedError",
    "PositionsNotStoredError",
    "Record",
    "Records",
    "Retries",
    "ShardKey",
    "ShardsLostError",
    "Start",
    "StateStoreMissingError",
    "StateStoreReplacedError",
    "StateStoreSchemaError",
    "Stream",
    "StreamMissingError",
    "StreamReplacedError",
]
