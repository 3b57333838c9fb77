"""Consume Amazon Kinesis streams together: many processes, one DynamoDB table."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer import aws_lambda as aws_lambda
    from kinesumer import blocking as blocking
    from kinesumer import dead_letters as dead_letters
    from kinesumer import kpl as kpl
    from kinesumer import schemas as schemas
    from kinesumer import testing as testing
    from kinesumer.app import App, Depends
    from kinesumer.aws.dynamodb import StateTable, create_table
    from kinesumer.client import Kinesumer
    from kinesumer.config import Config
    from kinesumer.consuming.delivery import Records
    from kinesumer.errors import (
        AccessDeniedError,
        ClientIdInUseError,
        CommitTimeoutError,
        ConfigurationError,
        CorruptRowError,
        CredentialsError,
        DataLossError,
        DeadLetterNotStoredError,
        DecodeError,
        FatalError,
        GroupBusyError,
        HandlerFailedError,
        InvalidPositionError,
        KinesumerError,
        PoisonRecordError,
        PutFailedError,
        ShardsLostError,
        StateStoreMissingError,
        StateStoreRecreatedError,
        StreamMissingError,
        StreamRecreatedError,
    )
    from kinesumer.handlers import Handler, Middleware, RetryPolicy
    from kinesumer.model.batches import Batch, ColumnBatch
    from kinesumer.model.changes import Change
    from kinesumer.model.owned import (
        AssignedShard,
        ShardAssignment,
        ShardLag,
        ShardPositions,
    )
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Fence, Record
    from kinesumer.model.streams import ShardKey, Start, Stream
    from kinesumer.producer.client import Producer
    from kinesumer.producer.pending import PutFuture, PutResult
    from kinesumer.wire.cbor import decoder
else:
    # Modules are imported on first use. Spark starts many processes that need only one
    # subpackage, and pytest loads the plugin where no test uses it.
    _SUBPACKAGES = (
        "aws_lambda",
        "blocking",
        "dead_letters",
        "kpl",
        "schemas",
        "testing",
    )
    # All other names are errors.
    _MODULES = {
        "App": "app",
        "AssignedShard": "model.owned",
        "Batch": "model.batches",
        "Change": "model.changes",
        "ColumnBatch": "model.batches",
        "Config": "config",
        "Depends": "app",
        "Fence": "model.records",
        "Handler": "handlers",
        "Kinesumer": "client",
        "Middleware": "handlers",
        "Position": "model.positions",
        "Producer": "producer.client",
        "PutFuture": "producer.pending",
        "PutResult": "producer.pending",
        "Record": "model.records",
        "Records": "consuming.delivery",
        "RetryPolicy": "handlers",
        "ShardAssignment": "model.owned",
        "ShardKey": "model.streams",
        "ShardLag": "model.owned",
        "ShardPositions": "model.owned",
        "Start": "model.streams",
        "StateTable": "aws.dynamodb",
        "Stream": "model.streams",
        "create_table": "aws.dynamodb",
        "decoder": "wire.cbor",
    }

    def __getattr__(name: str) -> object:
        """Import a public name or subpackage when it is first used."""
        from importlib import import_module

        if name in _SUBPACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES.get(name, 'errors')}")
        value = globals()[name] = getattr(module, name)
        return value

    def __dir__() -> list[str]:
        """Return all public names, including those not imported yet."""
        return sorted({*globals(), *__all__, *_SUBPACKAGES})


__all__ = [
    "AccessDeniedError",
    "App",
    "AssignedShard",
    "Batch",
    "Change",
    "ClientIdInUseError",
    "ColumnBatch",
    "CommitTimeoutError",
    "Config",
    "ConfigurationError",
    "CorruptRowError",
    "CredentialsError",
    "DataLossError",
    "DeadLetterNotStoredError",
    "DecodeError",
    "Depends",
    "FatalError",
    "Fence",
    "GroupBusyError",
    "Handler",
    "HandlerFailedError",
    "InvalidPositionError",
    "Kinesumer",
    "KinesumerError",
    "Middleware",
    "PoisonRecordError",
    "Position",
    "Producer",
    "PutFailedError",
    "PutFuture",
    "PutResult",
    "Record",
    "Records",
    "RetryPolicy",
    "ShardAssignment",
    "ShardKey",
    "ShardLag",
    "ShardPositions",
    "ShardsLostError",
    "Start",
    "StateStoreMissingError",
    "StateStoreRecreatedError",
    "StateTable",
    "Stream",
    "StreamMissingError",
    "StreamRecreatedError",
    "create_table",
    "decoder",
]
