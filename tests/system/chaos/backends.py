"""Where a chaos runs: on the embedded AWS, or on servers that we didn't write."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.local import EmbeddedAws, background
from tests.integration.contract import servers
from tests.system.chaos.endpoint import Endpoint
from tests.system.chaos.mishaps import RESHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.system.process.aws import Aws

NAMES = ("embedded", "kinesis-local", "ministack")


class Backend(NamedTuple):
    """An AWS, and how far it is like the real one."""

    name: str
    aws: Aws
    per_second: float
    """Records produced for each stream: some servers are slow."""
    without: Mapping[str, str] = MappingProxyType({})
    """Mishaps that can't be played, and why."""
    deviations: tuple[str, ...] = ()
    """What the verdict says nothing of."""


NO_LIMITS = "it has no limits: only throttling by order is seen"


@contextmanager
def backend(name: str, endpoint: str | None, seed: int) -> Iterator[Backend]:
    """Start what is asked for; an endpoint given goes before a name."""
    with ExitStack() as stack:
        if endpoint is not None:
            aws = stack.enter_context(Endpoint(endpoint, endpoint, seed))
            yield Backend(endpoint, aws, 20, {}, ("limits are those of the endpoint",))
        elif name == "embedded":
            yield Backend(
                name, stack.enter_context(background(EmbeddedAws(seed=seed))), 20
            )
        elif name == "kinesis-local":
            kinesis = stack.enter_context(servers.kinesis_local())
            dynamodb = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(kinesis, dynamodb, seed))
            yield Backend(name, aws, 10, {}, (NO_LIMITS, "DynamoDB is MiniStack's"))
        else:
            url = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(url, url, seed))
            gone = "a parent vanishes with its unread records in place of ending"
            without = dict.fromkeys(RESHARDS, gone)
            yield Backend(name, aws, 20, without, (NO_LIMITS,))
