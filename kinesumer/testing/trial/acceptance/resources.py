"""The names and tags of what runs create, and the removal of leftovers."""

from __future__ import annotations

import secrets
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from kinesumer.runtime.partitions import is_aws_host

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


class Resources(Protocol):
    """The streams, or the tables, of an account."""

    kind: str

    async def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix."""
        ...

    async def tags(self, name: str) -> dict[str, str]:
        """Return the tags of a resource."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a resource."""
        ...


async def find_leftovers(resources: Resources) -> list[str]:
    """Return the names of what has both the prefix and the tag of runs."""
    names = await resources.names(f"{PREFIX}-")
    return [name for name in names if TAG in await resources.tags(name)]
