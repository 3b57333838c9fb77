"""Bound what data costs that is decoded with a given Avro schema.

A registry's schema, like the data, may come from anyone who can write records. Without
these bounds, ten bytes could stand for ten million values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# So many values each byte of data may stand for. Usual schemas have at most two: a
# record, and its only field.
MAX_VALUES_PER_BYTE = 4
# So many values of a schema may take no bytes at all.
MAX_FREE_VALUES = 1000
# A decimal of 1,024 bytes has 2,466 digits. The time to convert one grows with the
# square of its length: with 300 KB it is 14 s.
MAX_DECIMAL_BYTES = 1024
# The longest varint of 64 bits.
MAX_VARINT_BYTES = 10
# The logical type by which fastavro finds the bounded reader of decimals.
BOUNDED_DECIMAL = "kinesumer-decimal"


class Cost(NamedTuple):
    """What a value takes: as few bytes as it can, and with how many values within."""

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
