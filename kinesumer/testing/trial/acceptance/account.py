"""Hold what the checks of a run use and create, and find what runs have left."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from kinesumer.aws.session import ClientFactory
from kinesumer.runtime.partitions import is_aws_host
from kinesumer.testing.trial.acceptance.contract.streams import Streams
from kinesumer.testing.trial.acceptance.resources import StreamResources, TableResources

# The names of all streams and tables of all runs begin with this.
PREFIX = "kinesumer-acceptance"
# All have this tag. Its value is the run's id.
TAG = "kinesumer:acceptance"


class RunNames(NamedTuple):
    """The names of what one run creates."""

    run_id: str

    @classmethod
    def new(cls) -> RunNames:
        """Return names that no other run uses."""
        return cls(secrets.token_hex(4))

    @property
    def prefix(self) -> str:
        """The beginning of all names of the run."""
        return f"{PREFIX}-{self.run_id}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags of all that the run creates."""
        return {TAG: self.run_id}

    @property
    def table(self) -> str:
        """The name of the state store's table."""
        return f"{self.prefix}-state"


def is_aws(endpoint: str) -> bool:
    """Return whether an endpoint belongs to AWS, and not to an emulator."""
    return is_aws_host(urlsplit(endpoint).hostname or "")


async def find_leftovers(resources: StreamResources | TableResources) -> list[str]:
    """Return the names of what has both the prefix and the tag of runs."""
    names = await resources.names(f"{PREFIX}-")
    return [name for name in names if TAG in await resources.tags(name)]


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account, or other endpoint, that a run checks."""

    names: RunNames
    region: str
    clients: ClientFactory
    tables: TableResources
    streams: Streams
    other: Streams | None  # those of another account, by its role

    @property
    def is_aws(self) -> bool:
        """True if Kinesis and DynamoDB are those of AWS, not emulators."""
        endpoints = self.streams.resources.endpoint, self.tables.endpoint
        return all(map(is_aws, endpoints))

    @property
    def all_streams(self) -> list[Streams]:
        """The streams of the account, and of the other one."""
        return [self.streams, *([self.other] if self.other else [])]

    @property
    def resources(self) -> list[StreamResources | TableResources]:
        """The streams and tables of the account, and the streams of the other one."""
        return [*(streams.resources for streams in self.all_streams), self.tables]

    async def remove_all(self) -> list[str]:
        """Delete what the run has created. Return a sentence for each failure."""
        problems = []
        for streams in self.all_streams:
            for name in sorted(streams.created):
                try:
                    await streams.begin_deleting(name)
                except Exception as error:
                    problems.append(f"stream {name} isn't removed: {error}")
        try:
            await self.tables.delete(self.names.table)
        except Exception as error:
            problems.append(f"table {self.names.table} isn't removed: {error}")
        return problems


@asynccontextmanager
async def open_account(
    names: RunNames,
    region: str | None,
    role_arn: str | None,
    external_id: str | None,
) -> AsyncIterator[Account]:
    """Open the AWS clients of a run. Raise CredentialsError if there are none."""
    async with ClientFactory(region=region) as clients:
        tables = await TableResources.open(clients)
        resources = await StreamResources.open(clients)
        again = not is_aws(resources.endpoint)
        other = None
        if role_arn is not None:
            other = Streams(
                clients,
                await StreamResources.open(
                    clients, clients.role(role_arn, external_id)
                ),
                names.tags,
                tags_again=again,
                role_arn=role_arn,
                external_id=external_id,
            )
        yield Account(
            names=names,
            region=clients.region or "",
            clients=clients,
            tables=tables,
            streams=Streams(clients, resources, names.tags, tags_again=again),
            other=other,
        )
