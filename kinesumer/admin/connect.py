"""Connect to the state store, and choose the role that reads each stream."""

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
    """The IAM role that reads each stream."""

    by_stream: Mapping[str, str] = field(default_factory=dict)
    """Roles by stream name or ARN; the empty string stands for all other streams."""
    external_id: str | None = field(default=None, repr=False)

    def stream(self, name: str) -> Stream:
        """Return a stream, given by name or ARN, with its role."""
        for known in (name, stream_name(name), ""):
            if known in self.by_stream:
                role = self.by_stream[known]
                return Stream(name, role_arn=role, external_id=self.external_id)
        return Stream(name)


NO_ROLES = Roles()


def parse_roles(texts: Sequence[str], external_id: str | None) -> Roles:
    """Return the roles of ``--role [STREAM=]ARN`` options.

    Raises ConfigurationError.
    """
    if external_id and not texts:
        raise ConfigurationError("--external-id needs a role: give --role too")
    by_stream: dict[str, str] = {}
    for text in texts:
        stream, _, role = text.rpartition("=")
        if stream in by_stream:
            raise ConfigurationError(
                f"--role {text}: {stream or 'all streams'} already has a role; give "
                "one role for each stream"
            )
        by_stream[stream] = role
    return Roles(by_stream, external_id)


@asynccontextmanager
async def connect(
    table: str, region: str | None
) -> AsyncIterator[tuple[ClientFactory, DynamoStateStore]]:
    """Open the verified state store, and the clients that read streams."""
    # Imported here since these modules load slowly and --help doesn't need them.
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        store = await open_store(clients, table)
        await store.verify()
        yield clients, store
