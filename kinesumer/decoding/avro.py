"""Decode Avro's binary encoding with fastavro, and bound what that costs.

A registry's schema, like the data, may come from anyone who can write records. Without
bounds, ten bytes could stand for ten million values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache, partial
from io import BytesIO
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.json_decoding import cause_text, json_decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

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
# So many values each byte of data may stand for. Usual schemas have at most two: a
# record, and its only field.
MAX_VALUES_PER_BYTE = 4
# So many values of a schema may take no bytes at all. Chosen: schemas of people have
# far fewer fields, and a thousand values take little time and memory.
MAX_FREE_VALUES = 1000
# A decimal of 1,024 bytes has 2,466 digits. The time to convert one grows with the
# square of its length: with 300 KB it is 14 s.
MAX_DECIMAL_BYTES = 1024
# The longest varint of 64 bits.
MAX_VARINT_BYTES = 10
# The logical type by which fastavro finds the bounded reader of decimals.
BOUNDED_DECIMAL = "kinesumer-decimal"


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


class Cost(NamedTuple):
    """The least bytes that a value can take, and the number of values within it."""

    values: int
    bytes: int
    free: int = 0  # values of parts that take no bytes


class SchemaBounds:
    """Checks a parsed schema, and makes its decimals bounded.

    Raises ValueError if data can stand for too many values.
    """

    def __init__(self, schema: Any) -> None:
        self._named: Mapping[str, Any] = schema.get("__named_schemas", {})
        # The costs of named types; None while one is being computed.
        self._costs: dict[str, Cost | None] = {}
        # Whether a type contains itself.
        self.is_recursive: bool = False
        self._part(schema)

    def _part(self, node: Any) -> Cost:
        """Return the cost of what may occur again and again, if it is not too high."""
        cost = self._cost(node)
        limit = MAX_VALUES_PER_BYTE * (cost.bytes + 1)
        if cost.values > limit or cost.free > MAX_FREE_VALUES:
            raise ValueError(
                f"{cost.bytes} bytes of data would become {cost.values} values: leave "
                "out fields of type null"
            )
        return cost

    def _cost(self, node: Any) -> Cost:
        if isinstance(node, list):  # the index of a union's branch takes a byte
            for branch in node:
                self._part(branch)
            return Cost(1, 1)
        if isinstance(node, str):
            if node in self._named:
                return self._cost_of_named(node, self._named[node])
            return Cost(1, 0, 1) if node == "null" else Cost(1, 1)
        if "name" in node:
            return self._cost_of_named(node["name"], node)
        if node.get("logicalType") == "decimal":
            node["logicalType"] = BOUNDED_DECIMAL
        kind = node["type"]
        if kind == "map":  # the length of a key takes a byte
            self._part(node["values"])
            return Cost(1, 1)
        if kind == "array":
            if not self._part(node["items"]).bytes:
                raise ValueError("the items of an array would take no bytes")
            return Cost(1, 1)
        return self._cost(kind)

    def _cost_of_named(self, name: str, node: Any) -> Cost:
        if name not in self._costs:
            self._costs[name] = None
            self._costs[name] = self._cost_of_definition(node)
        cost = self._costs[name]
        if cost is None:
            self.is_recursive = True
            return Cost(1, 1)
        return cost

    def _cost_of_definition(self, node: Any) -> Cost:
        if "fields" not in node:  # an enum or a fixed
            if node.get("logicalType") == "decimal":
                node["logicalType"] = BOUNDED_DECIMAL
            size = node.get("size", 1)
            return Cost(1, size, not size)
        parts = [self._cost(field["type"]) for field in node["fields"]]
        values, bytes_, free = (sum(part[n] for part in parts) for n in range(3))
        return Cost(1 + values, bytes_, free + (not bytes_))


def bounded_decimal(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return fastavro's reader of decimals with a limit of their length."""

    def read_bounded(data: bytes, *schemas: Any) -> Any:
        if len(data) > MAX_DECIMAL_BYTES:
            raise ValueError(
                f"a decimal of {len(data):,} bytes is longer than {MAX_DECIMAL_BYTES:,}"
            )
        return read(data, *schemas)

    return read_bounded


def bounded_decoder(decoder: Any) -> Any:
    """Return a subclass of fastavro's decoder with a limit of the length of numbers.

    The time to read a varint in Python grows with the square of its length.
    """

    class BoundedDecoder(decoder):  # type: ignore[misc]
        def read_long(self) -> int:
            number: int = 0
            for place in range(MAX_VARINT_BYTES):
                byte: bytes = self.fo.read(1)
                if not byte:
                    raise EOFError
                number |= (byte[0] & 127) << 7 * place
                if byte[0] < 128:
                    return number >> 1 ^ -(number & 1)
            raise ValueError(f"a number has more than {MAX_VARINT_BYTES} bytes")

        read_int = read_long

    return BoundedDecoder
