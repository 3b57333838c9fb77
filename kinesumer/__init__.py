"""Consume Amazon Kinesis streams together: many processes, one DynamoDB table."""

from kinesumer.buffer import Batch
from kinesumer.client import Kinesumer
from kinesumer.config import Config
from kinesumer.delivery import Records
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
    KinesumerError,
    LetterTooLargeError,
    PositionRefusedError,
    ShardsLostError,
    StateStoreMissingError,
    StateStoreReplacedError,
    StateStoreSchemaError,
    StreamMissingError,
    StreamReplacedError,
)
from kinesumer.model import Fence, Position, Record, ShardKey, Start, Stream

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
    "Kinesumer",
    "KinesumerError",
    "LetterTooLargeError",
    "Position",
    "PositionRefusedError",
    "Record",
    "Records",
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
