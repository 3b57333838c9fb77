"""Write a position or a start as Kinesis's requests, and subscriptions, have it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from kinesumer.errors import (
    InvalidPositionError,
    StartInFutureError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start

SUBSCRIPTION = "subscription:"


class SubscriptionToken(msgspec.Struct, array_like=True):
    """The start of a subscription, in place of a shard iterator."""

    shard_id: str
    after: Position | Start

    def encode(self) -> str:
        """Return the token as a text, which ``decode_subscription_token()`` reads."""
        return SUBSCRIPTION + msgspec.json.encode(self).decode()


def decode_subscription_token(iterator: str) -> SubscriptionToken:
    """Return the start of a subscription."""
    text = iterator.removeprefix(SUBSCRIPTION)
    return msgspec.json.decode(text, type=SubscriptionToken)


class _StartingPosition(NamedTuple):
    kind: str
    sequence_number: str | None = None
    timestamp: float | None = None  # seconds since 1970


def iterator_arguments(after: Position | Start) -> dict[str, object]:
    """Return the arguments of GetShardIterator that say where to begin."""
    position = _starting_position(after)
    return _without_none(
        ShardIteratorType=position.kind,
        StartingSequenceNumber=position.sequence_number,
        Timestamp=position.timestamp,
    )


def subscription_position(after: Position | Start) -> dict[str, object]:
    """Return the argument ``StartingPosition`` of SubscribeToShard."""
    position = _starting_position(after)
    return _without_none(
        Type=position.kind,
        SequenceNumber=position.sequence_number,
        Timestamp=position.timestamp,
    )


def _starting_position(after: Position | Start) -> _StartingPosition:
    if isinstance(after, Position):
        # If only some user records of an aggregate were processed, the whole aggregate
        # is read again.
        whole = after.sub_sequence_number is None
        kind = "AFTER_SEQUENCE_NUMBER" if whole else "AT_SEQUENCE_NUMBER"
        return _StartingPosition(kind, after.sequence_number)
    if after.timestamp is None:
        return _StartingPosition(after.type)
    # Kinesis uses milliseconds. Round down, so that no record is skipped.
    timestamp = math.floor(after.timestamp * 1000) / 1000
    return _StartingPosition(after.type, timestamp=timestamp)


def _without_none(**arguments: object) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if value is not None}


@contextmanager
def timestamp_errors(arguments: Mapping[str, object]) -> Iterator[None]:
    """Raise StartInFutureError if Kinesis rejects a timestamp in the arguments."""
    try:
        yield
    except (TrimmedPositionError, InvalidPositionError) as error:
        # Kinesis rejects a timestamp only if it is in the future.
        if "Timestamp" in arguments:
            raise StartInFutureError(str(error)) from error
        raise
