"""Decode records that name a schema of a registry, which is looked up once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kinesumer.decoding.avro import (
    AvroSchema,
    T,
    configured_schema,
    converter,
    payload_decoder,
)
from kinesumer.decoding.protobuf import is_message
from kinesumer.errors import (
    ConfigurationError,
    KinesumerError,
    SchemaRegistryUnavailableError,
    TransientError,
)
from kinesumer.model.json_decoding import json_decoder
from kinesumer.model.records import Record
from kinesumer.runtime.failure_log import RepeatedLines, logger
from kinesumer.runtime.tasks import Retries
from kinesumer.runtime.threads import refusal_errors

K = TypeVar("K")
Decode = Callable[[bytes], Any]
FORMATS = "AVRO", "JSON", "PROTOBUF"
# Chosen: far more than the records of a stream name.
MAX_SCHEMAS = 1000
# The waits take 2 to 5 s: a restart of the registry, and not an outage.
RETRIES = Retries((TransientError,), max_attempts=6, waits_for_credentials=True)
# How long an id is refused that the registry does not know, or whose schema is invalid.
# A stream may have many records with such an id. Chosen: a person who has registered
# the schema can wait for half a minute.
REFUSED_SECONDS = 30.0


class RegistryDecoder(Generic[T]):
    """Decodes records whose headers name a schema of a registry, as values of a type.

    ``parse`` returns the id and the payload of a record's data, and ``skip_index``
    removes the registry's message index before a Protobuf message. Raises
    ConfigurationError for a type or a schema that is invalid.
    """

    def __init__(
        self,
        parse: Callable[[bytes], tuple[Any, bytes]],
        skip_index: Callable[[bytes], bytes],
        type_: Any,
        reader_schema: Any,
    ) -> None:
        self._parse, self._skip_index = parse, skip_index
        self._type, self._is_message = type_, is_message(type_)
        self._convert = None if self._is_message else converter(type_)
        self._reader: AvroSchema | None = None
        if reader_schema is not None:
            if self._is_message:
                raise ConfigurationError(
                    f"reader_schema= is for Avro, and type={type_.__name__} is a "
                    "Protobuf message: give one of them"
                )
            self._reader = configured_schema("reader_schema", reader_schema)
        self._schemas: SchemaCache[Any] = SchemaCache(self._fetch)

    def __call__(self, record: Record) -> T | Awaitable[T]:
        """Return the record's value; an awaitable of it if its schema is not cached.

        Raises ValueError if the header, the schema's id or the data is invalid, and
        errors of the libraries that decode. If the registry cannot be asked, the
        awaitable raises SchemaRegistryUnavailableError after six attempts, or
        FatalError or ConfigurationError at once.
        """
        id, payload = self._parse(record.data)
        decode = self._schemas.get(id)
        if decode is None:
            return self._look_up(id, payload)
        value: T = decode(payload)
        return value

    async def _look_up(self, id: Any, payload: bytes) -> T:
        value: T = (await self._schemas.find(id))(payload)
        return value

    async def _fetch(self, id: Any) -> Decode:
        """Return the decoder of an id, as ``SchemaCache`` asks for it."""
        raise NotImplementedError

    def _decoder_of(
        self, schema: str, data_format: str, definition: str, references: Sequence[str]
    ) -> Decode:
        """Return the decoder of a schema, which errors call ``schema``.

        ``references`` are the definitions of Avro schemas that the schema needs, in an
        order in which each needs only those before it. Raises ValueError if the schema
        is invalid or has another format than ``type``.
        """
        if data_format not in FORMATS:
            raise ValueError(f"{schema} has the unknown format {data_format!r}")
        if self._is_message != (data_format == "PROTOBUF"):
            advice = (
                f"type={self._type.__name__} is a Protobuf message"
                if self._is_message
                else "type= must be the message class that protoc generated"
            )
            raise ValueError(f"{schema} has the format {data_format}: {advice}")
        if data_format == "PROTOBUF":
            skip, parse = self._skip_index, self._type.FromString
            return lambda payload: parse(skip(payload))
        if data_format == "JSON":
            return json_decoder(Any if self._type is None else self._type)
        try:
            writer = AvroSchema(definition, references)
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ValueError(f"{schema} is not valid Avro: {error}") from error
        return payload_decoder(writer, self._reader, self._convert)


def varint(data: bytes, start: int) -> tuple[int, int]:
    """Return an unsigned varint of up to five bytes, and the index after it."""
    value = 0
    for place, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    raise ValueError("the Protobuf message index is truncated, or too long")


class SchemaCache(Generic[K]):
    """The decoders of schemas by the schemas' ids.

    ``fetch`` returns the decoder of an id. It raises TransientError if a retry may
    help, and ValueError if the id or its schema is invalid. At most ``MAX_SCHEMAS``
    decoders are kept; those that were fetched first are dropped first.
    """

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[Decode]],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._now = fetch, now
        self._decoders: dict[K, Decode] = {}
        self._lines = RepeatedLines()
        self._refused: dict[K, tuple[float, str]] = {}
        # Look-ups that are running, by event loop and id.
        self._pending: dict[tuple[object, K], asyncio.Task[Decode]] = {}
        # The decoder of an id that was fetched before, or None. Any thread may call it.
        self.get: Callable[[K], Decode | None] = self._decoders.get

    async def find(self, id: K) -> Decode:
        """Return the decoder of an id, and look the schema up if necessary.

        Calls for one id on one event loop share one look-up. Raises ValueError,
        SchemaRegistryUnavailableError after several attempts, and other errors of
        ``fetch`` without a retry.
        """
        if (decode := self.get(id)) is not None:
            return decode
        until, reason = self._refused.get(id, (0.0, ""))
        if reason and self._now() < until:
            raise ValueError(reason)
        loop = asyncio.get_running_loop()
        task = self._pending.get((loop, id))
        if task is None:
            task = self._pending[loop, id] = loop.create_task(self._fetched(id))
            task.add_done_callback(partial(self._store, loop, id))
        # A caller that is cancelled does not cancel the look-up of the others.
        return await asyncio.shield(task)

    async def _fetched(self, id: K) -> Decode:
        try:
            return await RETRIES.call(self._ask, id, on_failure=self._log_waiting)
        except TransientError as error:
            raise SchemaRegistryUnavailableError(
                f"{error}; {RETRIES.max_attempts} attempts failed: check that the "
                "schema registry is up and can be reached, and start again"
            ) from error

    async def _ask(self, id: K) -> Decode:
        # A module may be imported only now, which needs a descriptor.
        with refusal_errors("a schema", SchemaRegistryUnavailableError):
            return await self._fetch(id)

    def _log_waiting(self, error: TransientError) -> None:
        if error.lacks_credentials and self._lines.is_due("registry", self._now()):
            logger.warning(
                "the schema registry can't be asked, trying again: %s", error
            )

    def _store(self, loop: object, id: K, task: asyncio.Task[Decode]) -> None:
        del self._pending[loop, id]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            _insert(self._decoders, id, task.result())
            self._refused.pop(id, None)
        elif isinstance(error, ValueError) and not isinstance(error, KinesumerError):
            _insert(self._refused, id, (self._now() + REFUSED_SECONDS, str(error)))


def _insert(into: dict[K, Any], id: K, value: Any) -> None:
    into.pop(id, None)
    if len(into) >= MAX_SCHEMAS:
        del into[next(iter(into))]
    into[id] = value
