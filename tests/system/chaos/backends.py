"""The servers for a chaos run: the embedded AWS, or another project's emulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from kinesumer.testing import EmbeddedAws, background
from tests.integration.contract import servers
from tests.system.chaos.endpoint import Endpoint
from tests.system.chaos.mishaps import FAULTS, RESHARDS

NAMES = ("embedded", "kinesis-local", "ministack")


class Backend(NamedTuple):
    """A server that emulates AWS, and its differences from AWS."""

    name: str
    aws: Any  # an EmbeddedAws, or an Endpoint
    per_second: float  # records produced for each stream; some servers are slow
    # The mishaps that can't happen on this server, and the reason for each.
    without: Mapping[str, str] = MappingProxyType({})
    deviations: tuple[str, ...] = ()  # properties that the verdict can't judge
    # The stream consumer that reads every second stream by enhanced fan-out.
    fan_out: str | None = None


NO_FAULTS = dict.fromkeys(FAULTS, "its faults can't be ordered")
NO_LIMITS = "it has no limits, so it never throttles"


@contextmanager
def backend(name: str, endpoint: str | None, seed: int) -> Iterator[Backend]:
    with ExitStack() as stack:
        if endpoint is not None:
            aws = stack.enter_context(Endpoint(endpoint, endpoint))
            limits = "limits are those of the endpoint"
            yield Backend(endpoint, aws, 20, NO_FAULTS, (limits,))
        elif name == "embedded":
            embedded = stack.enter_context(background(EmbeddedAws(seed=seed)))
            yield Backend(name, embedded, 20, fan_out="chaos")
        elif name == "kinesis-local":
            kinesis = stack.enter_context(servers.kinesis_local())
            dynamodb = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(kinesis, dynamodb))
            deviations = (NO_LIMITS, "DynamoDB is MiniStack's")
            yield Backend(name, aws, 10, NO_FAULTS, deviations)
        else:
            url = stack.enter_context(servers.ministack())
            aws = stack.enter_context(Endpoint(url, url))
            gone = "a parent vanishes with its unread records in place of ending"
            without = NO_FAULTS | dict.fromkeys(RESHARDS, gone)
            yield Backend(name, aws, 20, without, (NO_LIMITS,))
