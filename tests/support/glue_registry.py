"""Provide a Glue Schema Registry that moto serves, and a schema of orders."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
from botocore.session import get_session
from moto.server import ThreadedMotoServer

from kinesumer.model.records import Record
from kinesumer.testing import record

NUMBERS = count()
SCHEMA: Any = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}],
}


@dataclass
class Order:
    """An order as the schema describes it."""

    id: int


class GlueRegistry(NamedTuple):
    """A registry, and the URL of the server that has it."""

    url: str
    client: Any
    name: str

    def register(self, data_format: str, definition: str) -> UUID:
        """Create a schema. Return the id of its first version."""
        answer = self.client.create_schema(
            RegistryId={"RegistryName": self.name},
            SchemaName=f"schema-{next(NUMBERS)}",
            DataFormat=data_format,
            Compatibility="NONE",
            SchemaDefinition=definition,
        )
        return UUID(answer["SchemaVersionId"])


@contextmanager
def serve_glue_registry(name: str | None = None) -> Iterator[GlueRegistry]:
    """Serve a new registry on a free port for the block."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        client = get_session().create_client(
            "glue",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id="administrator",
            aws_secret_access_key="secret",
        )
        name = name or f"registry-{next(NUMBERS)}"
        client.create_registry(RegistryName=name)
        yield GlueRegistry(url, client, name)
        # moto would keep it for the next test of this process.
        client.delete_registry(RegistryId={"RegistryName": name})
    finally:
        server.stop()


def glue_data(id: UUID, payload: bytes, *, compress: bool = False) -> bytes:
    """Return data as Glue's serializers write it."""
    if compress:
        payload = zlib.compress(payload)
    return bytes([3, 5 if compress else 0]) + id.bytes + payload


def avro(schema: Any, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


async def decoded(decode: Callable[[Record], Any], data: bytes) -> Any:
    value = decode(record(data))
    return await value if inspect.isawaitable(value) else value
