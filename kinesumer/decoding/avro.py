"""Decode Avro's binary encoding with fastavro."""

from __future__ import annotations

from copy import deepcopy
from functools import cache, partial
from io import BytesIO
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from kinesumer.decoding.avro_costs import (
    BOUNDED_DECIMAL,
    SchemaBounds,
    bounded_decimal,
    bounded_decoder,
)
from kinesumer.errors import ConfigurationError
from kinesumer.model.json_decoding import cause_text, json_decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Without ``type=``, values consist of dictionaries, lists and other plain values.
    from typing_extensions import TypeVar

    from kinesumer.model.records import Record

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

# A schema that is not a record becomes the field of one, since fastavro keeps a
# schema's named types in its dictionary. Both have the same encoding.
WRAPPER, FIELD = "kinesumer_value", "value"


class AvroDecoder(Generic[T]):
    """Decodes records that are Avro, all written with one schema.

    ``schema`` is the writer's schema, as JSON text or as the value that JSON text
    decodes to. With ``reader_schema``, values are resolved to it. With ``type``, values
    are converted to a msgspec Struct, a dataclass, a Pydantic model, or another type
    that msgspec knows. Data with a container file's header or a registry's header is
    not accepted.

    Needs the extra ``avro``. Raises ConfigurationError if it is not installed, or if an
    argument is invalid.
    """

    def __init__(
        self,
        schema: Any,
        *,
        reader_schema: Any = None,
        type: type[T] | None = None,
    ) -> None:
        writer = configured_schema("schema", schema)
        reader = None
        if reader_schema is not None:
            reader = configured_schema("reader_schema", reader_schema)
        self._decode = payload_decoder(writer, reader, converter(type))

    def __call__(self, record: Record) -> T:
        """Return the record's value. Raises ValueError if the data does not fit."""
        value: T = self._decode(record.data)
        return value


class AvroSchema:
    """A valid schema with the schemas that it refers to.

    Raises ValueError, also if its data could cost far more than it weighs.
    """

    def __init__(self, schema: Any, references: Sequence[Any] = ()) -> None:
        parse = fastavro().parse_schema
        named: dict[str, Any] = {}
        try:
            for reference in references:
                parse(json_value(reference), named_schemas=named)
            definition = json_value(schema)
            field = {"name": FIELD, "type": definition}
            wrapped = {"type": "record", "name": WRAPPER, "fields": [field]}
            self.is_record: bool = isinstance(definition, dict)
            self.wrapped: Any = parse(wrapped, named_schemas=dict(named))
            self.plain: Any = self.wrapped
            if self.is_record:
                self.plain = parse(definition, named_schemas=named)
                SchemaBounds(self.plain)
            self.is_recursive: bool = SchemaBounds(self.wrapped).is_recursive
        except ConfigurationError:
            raise
        except Exception as error:  # fastavro raises any error for malformed schemas
            raise ValueError(f"{type(error).__name__}: {error}") from error


def configured_schema(name: str, schema: Any) -> AvroSchema:
    """Return the schema of an argument. Raises ConfigurationError."""
    try:
        return AvroSchema(schema)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(
            f"{name}={schema!r:.200} is not a valid Avro schema ({error}): correct it"
        ) from error


def payload_decoder(
    writer: AvroSchema,
    reader: AvroSchema | None,
    convert: Callable[[Any], Any] | None,
) -> Callable[[bytes], Any]:
    """Return a function that decodes one value, and refuses bytes that follow it."""
    is_plain = writer.is_record and (reader is None or reader.is_record)
    read = fastavro().schemaless_reader
    if writer.is_recursive or (reader is not None and reader.is_recursive):
        read = _reader_in_python()
    writers: Any = writer.plain if is_plain else writer.wrapped
    readers: Any = None
    if reader is not None:
        readers = reader.plain if is_plain else reader.wrapped

    def decode(payload: bytes) -> Any:
        stream = BytesIO(payload)
        try:
            value = read(stream, writers, readers)
        except Exception as error:  # fastavro raises any error for malformed data
            raise ValueError(
                f"the data does not fit its Avro schema ({cause_text(error)})"
            ) from error
        if (rest := len(payload) - stream.tell()) > 0:
            raise ValueError(f"{rest:,} bytes follow the Avro value: check its schema")
        if not is_plain:
            value = value[FIELD]
        return value if convert is None else convert(value)

    return decode


def fastavro() -> Any:
    """Return the module. Raises ConfigurationError if it is not installed."""
    try:
        import fastavro as module
    except ImportError as error:
        raise ConfigurationError(
            "Avro needs fastavro: pip install 'kinesumer[avro]'"
        ) from error
    readers = module.read.LOGICAL_READERS
    for kind in ("bytes", "fixed"):
        name = f"{kind}-{BOUNDED_DECIMAL}"
        readers.setdefault(name, bounded_decimal(readers[f"{kind}-decimal"]))
    return module


@cache
def _reader_in_python() -> Any:
    """Return fastavro's reader in Python, for recursive schemas.

    The compiled reader has no limit of depth: deeply nested data would end the process.
    The one in Python raises RecursionError.
    """
    from fastavro import _read_py

    read, name = _read_py.schemaless_reader, "BinaryDecoder"
    names = {**read.__globals__, name: bounded_decoder(read.__globals__[name])}
    return FunctionType(read.__code__, names, None, read.__defaults__)


def json_value(schema: Any) -> Any:
    """Return the value of a schema that may be JSON text.

    Text that is not JSON is the name of a type. Raises msgspec.DecodeError.
    """
    if isinstance(schema, str) and schema.lstrip()[:1] in ('"', "{", "["):
        return msgspec.json.decode(schema)
    return deepcopy(schema)  # fastavro may keep parts of it


def converter(type_: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts plain values to a type; None if there is none.

    Raises ConfigurationError if neither msgspec nor Pydantic knows the type.
    """
    if type_ is None:
        return None
    json_decoder(type_)  # checks the type
    if hasattr(type_, "model_validate"):
        validate: Callable[[Any], Any] = type_.model_validate
        return validate
    return partial(msgspec.convert, type=type_)
