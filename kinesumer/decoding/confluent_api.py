"""Get schemas from Confluent's Schema Registry, or one with the same API, by HTTP."""

from __future__ import annotations

from base64 import b64encode
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from kinesumer.aws.endpoints import check_port, require_no_credentials
from kinesumer.aws.http.addresses import AddressCache
from kinesumer.aws.http.resolver import Resolver
from kinesumer.errors import (
    ConfigurationError,
    FatalError,
    SchemaRegistryUnavailableError,
)
from kinesumer.runtime.text import SECRETS

# Chosen: records wait meanwhile, and a registry reads a schema from its memory.
REQUEST_SECONDS = 5.0
# Chosen: far more than a schema has that people can use.
MAX_ANSWER_BYTES = 8 << 20
# The registry's error codes for a schema, a subject or a version that does not exist.
NOT_FOUND = 40401, 40402, 40403
BUSY = HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS


class Reference(msgspec.Struct):
    """A version of a subject that a schema refers to."""

    subject: str
    version: int


class StoredSchema(msgspec.Struct):
    """A schema as the registry stores it."""

    definition: str = msgspec.field(name="schema")
    data_format: str = msgspec.field(default="AVRO", name="schemaType")
    references: list[Reference] | None = None


class _Refusal(msgspec.Struct):
    error_code: int = 0
    message: str = ""


def check_url(url: str) -> None:
    """Raise ConfigurationError unless the text is the URL of a registry."""
    require_no_credentials("the schema registry's URL", url)
    check_port(f"schema registry {url!r}", url)
    parts = urlsplit(url)
    is_plain = not parts.query and not parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ConfigurationError(
            f"url={url!r} must be a schema registry's URL, such as "
            "https://registry.example.com"
        )


class ConfluentApi:
    """The connections to one registry, which the end of the block closes."""

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        self._url = url
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if user is not None:
            token = b64encode(f"{user}:{password}".encode()).decode()
            SECRETS.add(password)
            SECRETS.add(token)
            headers["Authorization"] = f"Basic {token}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Resolver(AddressCache())),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
            headers=headers,
        )

    async def get(self, path: str) -> StoredSchema | None:
        """Return the schema at a path, or None if the registry does not have it.

        Raises SchemaRegistryUnavailableError if a retry may help, and FatalError or
        ConfigurationError otherwise.
        """
        request = f"GET {path} of the schema registry at {self._url}"
        url = URL(self._url + path, encoded=True)
        try:
            # The password must not go to another host.
            async with self._session.get(url, allow_redirects=False) as answer:
                status, body = answer.status, await _body(answer)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            SECRETS.clean(error)
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise SchemaRegistryUnavailableError(f"{request}: {text}") from error
        if status != 200:
            _raise_unless_not_found(request, status, body)
            return None
        try:
            return msgspec.json.decode(body, type=StoredSchema)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SchemaRegistryUnavailableError(
                f"{request}: the response is not a schema ({error}); check which "
                "service responds there"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """Return the response's body. Raises ClientPayloadError if it is too long."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(
                f"the response is longer than {MAX_ANSWER_BYTES:,} bytes"
            )
    return bytes(body)


def _raise_unless_not_found(request: str, status: int, body: bytes) -> None:
    """Raise an error, unless the registry says that it has no such schema."""
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = _Refusal()
    if refusal.error_code in NOT_FOUND:
        return
    said = SECRETS.quote(refusal.message)[:200]
    text = f"{request}: status {status} {said}".rstrip()
    if status >= 500 or status in BUSY:
        raise SchemaRegistryUnavailableError(text)
    if status in (401, 403):
        raise FatalError(f"{text}: check user= and password=, and their permissions")
    if status == 404:
        raise ConfigurationError(f"{text}: check that url= is that of a registry")
    raise FatalError(f"{text}; correct what the registry names")
