"""Decode records into values, and deal with records that cannot be decoded."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from kinesumer.errors import ConfigurationError, DecodeError, FatalError, TransientError
from kinesumer.model.json_decoding import item_decoder, json_decoder
from kinesumer.model.owned import OnAssigned, OnRevoked
from kinesumer.model.records import Record, decode_error
from kinesumer.model.streams import StartLike
from kinesumer.model.times import UntilLike
from kinesumer.model.validation import require_function
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import RepeatedLines, logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.telemetry.api import Telemetry

V = TypeVar("V")
AsyncDecode = Callable[[Record], Awaitable[V]]
Decode = type[V] | Callable[[Record], Awaitable[V] | V]
# A function gets the record and the error. It may be async.
OnDecodeError = Literal["raise", "skip"] | Callable[[Record, DecodeError], object]


class ConsumeKeywords(TypedDict, total=False):
    """The keyword arguments of ``consume()``, for type checkers."""

    start: StartLike
    until: UntilLike | None
    limit: int | None
    on_assigned: OnAssigned | None
    on_revoked: OnRevoked | None


class DecodeKeywords(ConsumeKeywords, total=False):
    """The keyword arguments of ``consume()`` with ``decode=``."""

    on_decode_error: OnDecodeError


# Errors that say that decoding does not work at present, for no fault of the record.
NOT_OF_THE_RECORD = (ConfigurationError, FatalError, TransientError)


class Decoder(NamedTuple):
    """A function that returns a record's value or, for some records, an awaitable."""

    call: Callable[[Record], Any]
    # Whether the function may return an awaitable. Decoders of JSON never do.
    may_await: bool
    # Decodes the data. None if a function decodes the record.
    json: Callable[[bytes], Any] | None = None

    def try_json(self, record: Record) -> Record[Any] | None:
        """Return the record with the value of its JSON. Usually this is enough.

        Otherwise return None: the data isn't JSON of the type, or has to be decoded by
        a function. ``decode()`` returns the value then, or raises the error.
        """
        if self.json is None or has_change(record):
            return None
        try:
            return record.with_value(self.json(record.data))
        except Exception:
            return None

    def decode_now(self, record: Record) -> Any:
        """Return a record's value, or the awaitable that the function returns.

        Raises DecodeError. If the function raises ConfigurationError, FatalError or
        TransientError, this error is raised instead, since the record is not its cause.
        """
        try:
            return self.call(record)
        except (DecodeError, *NOT_OF_THE_RECORD):
            raise
        except Exception as error:
            raise decode_error(record, error) from error

    async def decode(self, record: Record) -> Any:
        """Return a record's value. Raises what ``decode_now()`` raises."""
        value = self.decode_now(record)
        if not self.may_await or not inspect.isawaitable(value):
            return value
        try:
            return await value
        except (DecodeError, *NOT_OF_THE_RECORD):
            raise
        except Exception as error:
            raise decode_error(record, error) from error


def read_decoder(option: Any) -> Decoder | None:
    """Return the decoder that ``decode=`` says, or None for None.

    ``option`` is a type that JSON can be decoded as, or a function of a record. Raises
    ConfigurationError for any other object. From a record of a table's stream, a type
    is decoded from the item: see ``Change.image``.
    """
    if option is None:
        return None
    is_type = isinstance(option, type) or typing.get_origin(option) is not None
    if callable(option) and not is_type and not hasattr(option, "__supertype__"):
        require_function("decode", option)
        return Decoder(option, may_await=True)
    try:
        decode = json_decoder(option)
    except ConfigurationError as error:
        raise ConfigurationError(f"decode={error}") from error
    of_item = item_decoder(option)

    def call(record: Record) -> Any:
        if has_change(record):
            return of_item(record.change.image)
        return decode(record.data)

    return Decoder(call, may_await=False, json=decode)


def has_change(record: Record) -> bool:
    """Return whether a record comes from the stream of a DynamoDB table."""
    return record.source is not None and record.source.has_changes


def read_policy(
    decode: Any, on_decode_error: OnDecodeError, clock: Clock
) -> DecodePolicy | None:
    """Return what ``consume()`` does with records, or None if it does not decode.

    Raises ConfigurationError.
    """
    if on_decode_error not in ("raise", "skip") and not callable(on_decode_error):
        raise ConfigurationError(
            f"on_decode_error={on_decode_error!r} must be 'raise', 'skip' or a "
            "function of the record and the error"
        )
    decoder = read_decoder(decode)
    if decoder is not None:
        return DecodePolicy(decoder, on_decode_error, clock)
    if on_decode_error != "raise":
        raise ConfigurationError(
            f"on_decode_error={on_decode_error!r} has no effect without decode=: give "
            "both, or neither"
        )
    return None


@dataclass
class DecodePolicy:
    """Decodes the records of ``consume()``, and does what ``on_decode_error`` says."""

    decoder: Decoder
    _on_error: OnDecodeError
    _clock: Clock
    # About skipped records, by stream. Heartbeats log the numbers.
    _lines: RepeatedLines = field(default_factory=RepeatedLines)

    def with_calls(
        self, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> DecodePolicy:
        """Return a policy that calls its functions through ``wrap``.

        What a wrapped function returns is not awaited.
        """
        decoder, on_error = self.decoder, self._on_error
        if decoder.may_await:
            decoder = Decoder(wrap(decoder.call), may_await=False)
        if callable(on_error):
            on_error = wrap(on_error)
        return replace(self, decoder=decoder, _on_error=on_error)

    async def skip(
        self, telemetry: Telemetry, record: Record, error: DecodeError
    ) -> None:
        """Do what ``on_decode_error`` says. Then the record counts as done.

        ``telemetry`` counts the records that cannot be decoded. Raises the error if
        ``on_decode_error`` is "raise", and the errors of its function.
        """
        telemetry.count("decode_failures", record.stream_arn)
        if self._on_error == "raise":
            raise error
        if self._on_error == "skip":
            self._log_skipped(record, error)
            return
        result = self._on_error(record, error)
        if inspect.isawaitable(result):
            await result

    def _log_skipped(self, record: Record, error: DecodeError) -> None:
        if not self._lines.is_due(record.stream_arn, self._clock.now()):
            return
        logger.warning(
            "skipped: %s",
            escape_unprintable(str(error)),
            extra={
                "stream": record.stream,
                "shard_id": record.shard_id,
                "sequence_number": record.sequence_number,
                "sub_sequence_number": record.sub_sequence_number,
                "error": str(error),
            },
        )


@dataclass
class ByteCounter:
    """Counts decompressed bytes for the whole process. Any thread may add to it.

    Decoders are functions of a record, and may call one another, so that there is no
    object that each of them knows. What others decompress at the same time is counted
    too: then a call of user code gets fewer records.
    """

    total: int = 0


DECOMPRESSED = ByteCounter()


class DecompressionRoom:
    """The bytes to which the data in user code may be decompressed together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0

    @property
    def is_full(self) -> bool:
        """Return whether no further record should be decoded for now."""
        return self._used >= self._limit

    def take(self, count: int) -> None:
        """Count what a record was decompressed to. A negative count gives it back."""
        self._used += count
