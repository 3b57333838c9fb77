"""The way to the state store and to streams, also those in other accounts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Stream, stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory


@dataclass(frozen=True, slots=True)
class Roles:
    """Which role reads which stream."""

    by_stream: Mapping[str, str] = field(default_factory=dict)
    """Role by the stream's name or ARN; the empty text stands for all others."""
    external_id: str | None = field(default=None, repr=False)

    def stream(self, name: str) -> Stream:
        """Return a stream, named or given by ARN, with the role that reads it."""
        short = stream_name(name)
        for known in (name, short, ""):
            if known in self.by_stream:
                role = self.by_stream[known]
                return Stream(name, role_arn=role, external_id=self.external_id)
        return Stream(name)


NO_ROLES = Roles()


def parse_roles(texts: Sequence[str], external_id: str | None) -> Roles:
    """Return what ``--role [STREAM=]ARN`` options say. Raises ConfigurationError."""
    if external_id and not texts:
        raise ConfigurationError("--external-id is for a role: give --role too")
    by_stream: dict[str, str] = {}
    for text in texts:
        stream, _, role = text.rpartition("=")
        if stream in by_stream:
            raise ConfigurationError(
                f"--role {text}: {stream or 'all streams'} had a role already"
            )
        by_stream[stream] = role
    return Roles(by_stream, external_id)


@asynccontextmanager
async def connect(
    table: str, region: str | None
) -> AsyncIterator[tuple[ClientFactory, DynamoStateStore]]:
    """Open the state store, verified, and the clients that streams are read with."""
    # Heavy, and not needed by who asks for help.
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        store = await open_store(clients, table)
        await store.verify()
        yield clients, store
