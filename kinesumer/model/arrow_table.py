"""Make an Arrow table of a batch's records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "kinesis_"
_PLAIN_TYPES = frozenset({str, int, float, bool, bytes, datetime, type(None)})


def value_table(metadata: Mapping[str, pa.Array], values: Sequence[object]) -> pa.Table:
    """Return a table with the records' metadata, and with the fields of their values.

    Raises errors of pyarrow for values that do not fit a column.
    """
    import pyarrow as pa

    known, columns = _known_types(values), {}
    for name, column in _fields(values, known).items():
        try:
            columns[name] = pa.array(column, known.get(name))
        except (pa.ArrowException, OverflowError) as error:
            error.add_note(f"the values are those of column {name!r} of to_arrow()")
            raise
    return pa.table(
        {**{_free(n, {*columns}): metadata[n] for n in metadata}, **columns}
    )


def record_columns(records: Sequence[Any]) -> dict[str, pa.Array]:
    """Return the records' columns that differ from record to record."""
    import pyarrow as pa

    columns = (
        ("sequence_number", pa.string()),
        ("sub_sequence_number", pa.int64()),
        ("partition_key", pa.string()),
        ("arrived_at", pa.timestamp("us", "UTC")),
        ("data", pa.binary()),
    )
    return {
        name: pa.array([getattr(each, name) for each in records], type_)
        for name, type_ in columns
    }


def _free(name: str, taken: set[str]) -> str:
    """Return a name of a metadata column that no field of the values has."""
    while name in taken:
        name = PREFIX + name
    return name


# --- values ---------------------------------------------------------------------------


def _fields(values: Sequence[object], known: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields of all values, by their names."""
    types = {*map(type, values)}
    names = _field_names(*types) if len(types) == 1 else None
    if names is not None and [*names] == [*known]:  # so no value has a tag
        return {
            name: [_plain(field) for field in map(attrgetter(name), values)]
            for name in names
        }
    rows = [_row(value) for value in values]
    names = tuple(dict.fromkeys([*known, *(key for row in rows for key in row)]))
    return {name: [row.get(name) for row in rows] for name in names}


def _row(value: object) -> dict[str, Any]:
    """Return a value's fields. A value without fields is the field ``value``."""
    plain = _plain(value)
    return plain if isinstance(plain, dict) else {"value": plain}


def _plain(value: object) -> Any:
    """Return a value as dictionaries, lists and values that Arrow knows."""
    if type(value) in _PLAIN_TYPES:
        return value
    if (names := _field_names(type(value))) is not None:
        fields = {name: _plain(getattr(value, name)) for name in names}
        config = getattr(value, "__struct_config__", None)
        if config is not None and config.tag_field is not None:
            return {config.tag_field: config.tag, **fields}
        return fields
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return _plain(value.value)
    return str(value) if isinstance(value, UUID | Decimal) else value


def _field_names(type_: Any) -> tuple[str, ...] | None:
    """Return the names of a class's fields, or None if it has none."""
    if issubclass(type_, msgspec.Struct):
        return tuple(type_.__struct_fields__)
    if dataclasses.is_dataclass(type_):
        return tuple(field.name for field in dataclasses.fields(type_))
    if issubclass(type_, tuple):
        names: tuple[str, ...] | None = getattr(type_, "_fields", None)
        return names
    fields = getattr(type_, "model_fields", None)  # of Pydantic
    return None if fields is None else tuple(fields)


# --- types ----------------------------------------------------------------------------


def _known_types(values: Sequence[object]) -> dict[str, Any]:
    """Return the Arrow types of the fields that the values' classes declare.

    A type is None if Arrow has to infer it from the values.
    """
    known: dict[str, Any] = {}
    for type_ in dict.fromkeys(map(type, values)):
        for name, found in _types_of_fields(type_, frozenset()):
            known[name] = found if known.get(name, found) == found else None
    return known


def _types_of_fields(type_: Any, above: frozenset[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names and Arrow types of a class's fields."""
    from msgspec import inspect

    names = _field_names(type_)
    if names is None or type_ in above:
        return
    above |= {type_}
    if (models := getattr(type_, "model_fields", None)) is not None:
        for name in names:
            info = inspect.type_info(models[name].annotation)
            yield name, _arrow_type(info, above)
        return
    info = inspect.type_info(type_)
    if (tag := getattr(info, "tag_field", None)) is not None:
        yield tag, _type_of_constants([getattr(info, "tag", None)])
    for field in getattr(info, "fields", ()):
        yield field.name, _arrow_type(field.type, above)


def _arrow_type(info: Any, above: frozenset[Any]) -> Any:
    """Return the Arrow type of a type as msgspec describes it, or None."""
    import pyarrow as pa
    from msgspec import inspect as kinds

    simple: dict[Any, Any] = {
        kinds.BoolType: pa.bool_(),
        kinds.IntType: pa.int64(),
        kinds.FloatType: pa.float64(),
        kinds.StrType: pa.string(),
        kinds.UUIDType: pa.string(),
        kinds.DecimalType: pa.string(),
        kinds.BytesType: pa.binary(),
        kinds.DateTimeType: pa.timestamp("us", "UTC"),
        kinds.DateType: pa.date32(),
        kinds.TimeType: pa.time64("us"),
        kinds.TimeDeltaType: pa.duration("us"),
    }
    lists = kinds.ListType, kinds.SetType, kinds.FrozenSetType, kinds.VarTupleType
    if type(info) in simple:
        return simple[type(info)]
    if isinstance(info, kinds.EnumType):
        return _type_of_constants([each.value for each in info.cls])
    if isinstance(info, kinds.LiteralType):
        return _type_of_constants(info.values)
    if isinstance(info, lists):
        item = _arrow_type(info.item_type, above)
        return None if item is None else pa.list_(item)
    if isinstance(info, kinds.UnionType):
        others = [each for each in info.types if not isinstance(each, kinds.NoneType)]
        return _arrow_type(others[0], above) if len(others) == 1 else None
    fields = list(_types_of_fields(getattr(info, "cls", object), above))
    if not fields or any(found is None for _, found in fields):
        return None
    return pa.struct(fields)


def _type_of_constants(values: Sequence[object]) -> Any:
    import pyarrow as pa

    types = {type(value) for value in values}
    return {str: pa.string(), int: pa.int64()}.get(*types) if len(types) == 1 else None
