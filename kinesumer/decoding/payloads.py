"""Decode records that name a schema of a registry, as the schema says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic

from kinesumer.decoding.avro import (
    AvroSchema,
    T,
    configured_schema,
    converter,
    payload_decoder,
)
from kinesumer.decoding.cache import Decode, SchemaCache
from kinesumer.decoding.protobuf import is_message
from kinesumer.errors import ConfigurationError
from kinesumer.model.json_decoding import json_decoder
from kinesumer.model.records import Record

FORMATS = "AVRO", "JSON", "PROTOBUF"


class PayloadDecoders:
    """Makes the decoders of schemas, which return values of one type.

    ``skip_index`` removes the registry's message index before a Protobuf message.
    Raises ConfigurationError for a type or a schema that is invalid.
    """

    def __init__(
        self,
        type_: Any,
        reader_schema: Any,
        skip_index: Callable[[bytes], bytes],
    ) -> None:
        self._type, self._is_message = type_, is_message(type_)
        self._skip_index = skip_index
        self._convert = None if self._is_message else converter(type_)
        self._reader: AvroSchema | None = None
        if reader_schema is not None:
            if self._is_message:
                raise ConfigurationError(
                    f"reader_schema= is for Avro, and type={type_.__name__} is a "
                    "Protobuf message: give one of them"
                )
            self._reader = configured_schema("reader_schema", reader_schema)

    def make(
        self, schema: str, data_format: str, definition: str, references: Sequence[str]
    ) -> Callable[[bytes], Any]:
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


class RegistryDecoder(Generic[T]):
    """Decodes records whose headers name a schema of a registry.

    ``parse`` returns the id and the payload of a record's data, and ``fetch`` returns
    the decoder of an id. See ``SchemaCache``.
    """

    def __init__(
        self,
        parse: Callable[[bytes], tuple[Any, bytes]],
        fetch: Callable[[Any], Awaitable[Decode]],
    ) -> None:
        self._parse = parse
        self._schemas: SchemaCache[Any] = SchemaCache(fetch)

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
