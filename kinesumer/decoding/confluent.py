"""Decode records with the header of Confluent's Schema Registry.

The facts about the header come from the section "Wire format" of
docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kinesumer.decoding.avro import T
from kinesumer.decoding.registries import Decode, RegistryDecoder, varint
from kinesumer.errors import ConfigurationError
from kinesumer.model.validation import is_unicode

if TYPE_CHECKING:
    from kinesumer.decoding.confluent_api import ConfluentApi, StoredSchema

# Chosen: each takes a request. People's schemas refer to fewer.
MAX_REFERENCES = 100
CONFLUENT_MAGIC = 0  # the first byte of a record, which Confluent defines
_CONFLUENT_HEADER = struct.Struct(">BI")
# No Protobuf message is nested deeper: protoc allows 32 levels.
MAX_INDEXES = 100


class ConfluentDecoder(RegistryDecoder[T]):
    """Decodes records that a serializer of Confluent's Schema Registry has written.

    Each record names a schema by its id, which is looked up once at ``url``. Formats
    are Avro with references, JSON (decoded, and not checked against its JSON Schema)
    and Protobuf. With ``type``, values of Avro and JSON are converted to a msgspec
    Struct, a dataclass, a Pydantic model, or another type that msgspec knows. For
    Protobuf, ``type`` must be the message class that protoc generated; the message
    indexes of a record are not checked. With ``reader_schema``, values of Avro are
    resolved to that schema. ``user`` and ``password`` are for basic authentication.

    The decoder holds no connections: each look-up opens its own, and closes them. Any
    number of clients may share a decoder. Avro needs the extra ``avro``, and Protobuf
    the extra ``protobuf``. Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str,
        *,
        type: type[T] | None = None,
        reader_schema: Any = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        from kinesumer.decoding.confluent_api import check_url

        for name, text in (("url", url), ("user", user), ("password", password)):
            # The error doesn't show the password.
            if text is not None and not (isinstance(text, str) and is_unicode(text)):
                raise ConfigurationError(f"{name}= must be text that UTF-8 can encode")
        check_url(url)
        if (user is None) != (password is None):
            raise ConfigurationError(
                "basic authentication needs both: give user= and password=, or neither"
            )
        if user is not None and ":" in user:
            raise ConfigurationError(
                "user= contains a colon, which basic authentication does not allow: "
                "correct it"
            )
        self._url, self._user, self._password = url.rstrip("/"), user, password
        super().__init__(parse_confluent, skip_confluent_indexes, type, reader_schema)

    async def _fetch(self, id: int) -> Decode:
        from kinesumer.decoding.confluent_api import ConfluentApi

        schema = f"schema {id} of {self._url}"
        references: dict[str, str] = {}
        async with ConfluentApi(self._url, self._user, self._password) as api:
            stored = await api.get(f"/schemas/ids/{id}")
            if stored is None:
                raise ValueError(f"{self._url} has no schema {id}: check the URL")
            if stored.data_format == "AVRO":
                await self._collect(api, stored, schema, references, ())
        return self._decoder_of(
            schema, stored.data_format, stored.definition, list(references.values())
        )

    async def _collect(
        self,
        api: ConfluentApi,
        stored: StoredSchema,
        schema: str,
        found: dict[str, str],
        above: tuple[str, ...],
    ) -> None:
        """Add the schemas that a schema refers to, each after those that it needs."""
        for reference in stored.references or ():
            subject = quote(reference.subject, safe="")
            path = f"/subjects/{subject}/versions/{reference.version}"
            if path in found:
                continue
            if path in above or len(found) + len(above) >= MAX_REFERENCES:
                raise ValueError(
                    f"{schema} has references in a cycle, or more than "
                    f"{MAX_REFERENCES} of them"
                )
            referred = await api.get(path)
            if referred is None:
                raise ValueError(
                    f"{schema} refers to {reference.subject}, version "
                    f"{reference.version}, which does not exist"
                )
            await self._collect(api, referred, schema, found, (*above, path))
            found[path] = referred.definition


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


def skip_confluent_indexes(payload: bytes) -> bytes:
    """Return the Protobuf message after its message indexes.

    They are zigzag varints: the number of indexes, and then the indexes from the file
    to the nested message. A number of 0 stands for the first message of the file.
    Raises ValueError if the indexes are invalid.
    """
    number, end = varint(payload, 0)
    if number & 1 or number >> 1 > MAX_INDEXES:
        raise ValueError("the number of Protobuf message indexes is invalid")
    for _ in range(number >> 1):
        _, end = varint(payload, end)
    return payload[end:]
