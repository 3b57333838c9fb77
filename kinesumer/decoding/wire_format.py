"""Parse the headers that serializers of schema registries put before the data.

The facts come from the serializers' sources. Glue: ``AWSSchemaRegistryConstants``,
``GlueSchemaRegistryDeserializerDataParser`` and ``ProtobufWireFormatDecoder`` of
github.com/awslabs/aws-glue-schema-registry. Confluent: the section "Wire format" of
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from uuid import UUID

from kinesumer.runtime.decompression import DECOMPRESSED

GLUE_VERSION = 3
CONFLUENT_MAGIC = 0
_GLUE_HEADER = struct.Struct(">BB16s")
_CONFLUENT_HEADER = struct.Struct(">BI")
# No Protobuf message is nested deeper: protoc allows 32 levels.
MAX_INDEXES = 100


class Compression(IntEnum):
    """The compression bytes of the Glue Schema Registry's header."""

    NONE = 0
    ZLIB = 5


def parse_glue(data: bytes, max_decompressed_bytes: int) -> tuple[UUID, bytes]:
    """Return the schema version's id, and the data without header and compression.

    The header is a version byte (3), a compression byte (0: none, 5: zlib) and the id,
    a UUID of 16 bytes. Raises ValueError if the header or the compressed data is
    invalid, or if the decompressed data exceeds ``max_decompressed_bytes``.
    """
    if len(data) < _GLUE_HEADER.size:
        raise ValueError(
            f"{len(data)} bytes are too short for the header of the Glue Schema "
            f"Registry, which has {_GLUE_HEADER.size} bytes"
        )
    version, compression, id = _GLUE_HEADER.unpack_from(data)
    if version != GLUE_VERSION:
        raise ValueError(
            f"the first byte is {version}, but data of the Glue Schema Registry begins "
            f"with {GLUE_VERSION}"
        )
    payload = data[_GLUE_HEADER.size :]
    if compression == Compression.NONE:
        return UUID(bytes=id), payload
    if compression != Compression.ZLIB:
        raise ValueError(
            f"the compression byte is {compression}, but the Glue Schema Registry has "
            f"only {Compression.NONE} (none) and {Compression.ZLIB} (zlib)"
        )
    return UUID(bytes=id), _decompressed(payload, max_decompressed_bytes)


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"the compressed data is corrupt: {error}") from error
    if len(plain) > max_bytes:
        raise ValueError(
            f"{len(data):,} bytes decompress to more than the limit of {max_bytes:,} "
            "bytes (max_decompressed_bytes)"
        )
    DECOMPRESSED.add(len(plain))
    if not decompressor.eof:
        raise ValueError("the compressed data is truncated")
    if decompressor.unused_data:
        extra = len(decompressor.unused_data)
        raise ValueError(f"{extra:,} bytes follow the end of the compressed data")
    return plain


def parse_confluent(data: bytes) -> tuple[int, bytes]:
    """Return the schema's id, and the data after the header.

    The header is a zero byte and the id, 4 bytes in big-endian order. Raises ValueError
    if the header is invalid.
    """
    if len(data) < _CONFLUENT_HEADER.size:
        raise ValueError(
            f"{len(data)} bytes are too short for Confluent's header, which has "
            f"{_CONFLUENT_HEADER.size} bytes"
        )
    magic, id = _CONFLUENT_HEADER.unpack_from(data)
    if magic != CONFLUENT_MAGIC:
        raise ValueError(
            f"the first byte is {magic}, but Confluent's header begins with "
            f"{CONFLUENT_MAGIC}"
        )
    return id, data[_CONFLUENT_HEADER.size :]


def skip_glue_index(payload: bytes) -> bytes:
    """Return the Protobuf message after its message index, which is one varint.

    The index is the message's rank among all messages of the schema, ordered by name.
    Raises ValueError if the index is invalid.
    """
    _, end = _varint(payload, 0)
    return payload[end:]


def skip_confluent_indexes(payload: bytes) -> bytes:
    """Return the Protobuf message after its message indexes.

    They are zigzag varints: the number of indexes, and then the indexes from the file
    to the nested message. A number of 0 stands for the first message of the file.
    Raises ValueError if the indexes are invalid.
    """
    number, end = _varint(payload, 0)
    if number & 1 or number >> 1 > MAX_INDEXES:
        raise ValueError("the number of Protobuf message indexes is invalid")
    for _ in range(number >> 1):
        _, end = _varint(payload, end)
    return payload[end:]


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Return an unsigned varint of up to five bytes, and the index after it."""
    value = 0
    for place, byte in enumerate(data[start : start + 5]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, start + place + 1
    raise ValueError("the Protobuf message index is truncated, or too long")
