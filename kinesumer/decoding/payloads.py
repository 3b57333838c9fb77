"""Choose how the data of a registry's schema is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.decoding.avro import AvroSchema, configured_schema, payload_decoder
from kinesumer.decoding.values import converter, is_message
from kinesumer.errors import ConfigurationError
from kinesumer.model.json_types import json_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
