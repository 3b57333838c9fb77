"""Decode records with the header of the AWS Glue Schema Registry.

The facts about the header come from the serializers' sources:
``AWSSchemaRegistryConstants``, ``GlueSchemaRegistryDeserializerDataParser`` and
``ProtobufWireFormatDecoder`` of github.com/awslabs/aws-glue-schema-registry.
"""

from __future__ import annotations

import struct
import zlib
from functools import partial
from typing import Any
from uuid import UUID

from kinesumer.decoding.avro import T
from kinesumer.decoding.decoders import DECOMPRESSED
from kinesumer.decoding.registries import Decode, RegistryDecoder, varint
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import require_text

# Chosen: more than the largest record that isn't compressed, which has 10 MiB.
MAX_DECOMPRESSED_BYTES = 16 << 20
GLUE_VERSION = 3  # the first byte of a record, which AWS's library defines
NO_COMPRESSION, ZLIB = 0, 5  # the compression bytes of the header
_GLUE_HEADER = struct.Struct(">BB16s")


class GlueDecoder(RegistryDecoder[T]):
    """Decodes records that a serializer of the AWS Glue Schema Registry has written.

    Each record names a schema version, which is looked up once. Formats are Avro, JSON
    (decoded, and not checked against its JSON Schema) and Protobuf. With ``type``,
    values of Avro and JSON are converted to a msgspec Struct, a dataclass, a Pydantic
    model, or another type that msgspec knows. For Protobuf, ``type`` must be the
    message class that protoc generated; the message index of a record is not checked.
    With ``reader_schema``, values of Avro are resolved to that schema.

    With ``registry``, schemas of other registries are refused. ``region`` is the
    registry's region, by default that of the session. ``role_arn`` and ``external_id``
    name a role to assume. ``session`` takes the same values as in ``Kinesumer``. Data
    that decompresses to more than ``max_decompressed_bytes`` is refused.

    The decoder holds no connections: each look-up opens its own, and closes them. Any
    number of clients may share a decoder. Avro needs the extra ``glue``, and Protobuf
    the extra ``protobuf``. Raises ConfigurationError.
    """

    def __init__(
        self,
        *,
        type: type[T] | None = None,
        reader_schema: Any = None,
        registry: str | None = None,
        region: str | None = None,
        role_arn: str | None = None,
        external_id: str | None = None,
        session: object | None = None,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    ) -> None:
        given = {"registry": registry, "region": region, "role_arn": role_arn}
        for name, text in {**given, "external_id": external_id}.items():
            if text is not None:
                require_text(name, text)
        # zlib takes 0 as no limit.
        if not isinstance(max_decompressed_bytes, int) or max_decompressed_bytes < 1:
            raise ConfigurationError(
                f"max_decompressed_bytes={max_decompressed_bytes!r} must be 1 or more: "
                "give a number of bytes"
            )
        self._registry, self._region = registry, region
        self._role_arn, self._external_id = role_arn, external_id
        self._session = session
        self._has_asked = False  # whether Glue has ever answered
        parse = partial(parse_glue, max_decompressed_bytes=max_decompressed_bytes)
        super().__init__(parse, skip_glue_index, type, reader_schema)

    async def _fetch(self, id: UUID) -> Decode:
        from kinesumer.aws.glue import get_schema_version
        from kinesumer.aws.session import ClientFactory

        async with ClientFactory(
            self._session, region=self._region, trusted=self._has_asked
        ) as clients:
            role, region = None, clients.region
            if self._role_arn is not None:
                role = clients.role(self._role_arn, self._external_id)
            opened = await clients.open("glue", role=role)
            version = await get_schema_version(opened, id)
            self._has_asked = True
        if version is None:
            raise ValueError(
                f"the Glue Schema Registry in {region} has no schema version {id}: "
                "check the region and the account of the credentials"
            )
        if self._registry not in (None, version.registry):
            raise ValueError(
                f"schema version {id} belongs to the registry {version.registry}, and "
                f"not to {self._registry}"
            )
        schema = f"schema version {id} ({version.arn})"
        return self._decoder_of(schema, version.data_format, version.definition, ())


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
    if compression == NO_COMPRESSION:
        return UUID(bytes=id), payload
    if compression != ZLIB:
        raise ValueError(
            f"the compression byte is {compression}, but the Glue Schema Registry has "
            f"only {NO_COMPRESSION} (none) and {ZLIB} (zlib)"
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
    DECOMPRESSED.total += len(plain)
    if not decompressor.eof:
        raise ValueError("the compressed data is truncated")
    if decompressor.unused_data:
        extra = len(decompressor.unused_data)
        raise ValueError(f"{extra:,} bytes follow the end of the compressed data")
    return plain


def skip_glue_index(payload: bytes) -> bytes:
    """Return the Protobuf message after its message index, which is one varint.

    The index is the message's rank among all messages of the schema, ordered by name.
    Raises ValueError if the index is invalid.
    """
    _, end = varint(payload, 0)
    return payload[end:]
