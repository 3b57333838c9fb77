"""Connect to the state store, choose roles, and make the context of a command."""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace

from kinesumer.aws.session import ClientFactory
from kinesumer.coordination.startup_checks import find_live_members, read_all_liveness
from kinesumer.coordination.state_store import PacedStore
from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
    TransientError,
)
from kinesumer.model.rows import LivenessRow
from kinesumer.model.streams import Stream, stream_name
from kinesumer.model.validation import validate_name
from kinesumer.ops.group.fleet_store import (
    OPERATOR,
    OperatorStore,
    open_operator_store,
)
from kinesumer.ports import StateStore
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.telemetry.history_file import open_history
from kinesumer.telemetry.recorded_calls import recorded


@dataclass(frozen=True, slots=True)
class Roles:
    """The IAM role that reads each stream."""

    # Roles by stream name or ARN; the empty string stands for all other streams.
    by_stream: Mapping[str, str] = field(default_factory=dict)
    external_id: str | None = field(default=None, repr=False)

    def stream(self, name: str) -> Stream:
        """Return a stream, given by name or ARN, with its role."""
        role = _value_for(name, self.by_stream)
        if role is None:
            return Stream(name)
        return Stream(name, role_arn=role, external_id=self.external_id)

    def streams(self, names: Sequence[str]) -> list[Stream]:
        """Return streams, given by name or ARN, with their roles.

        Raises ConfigurationError if a role is for a stream that isn't among them.
        """
        _require_named("--role", self.by_stream, names)
        return [self.stream(name) for name in names]


NO_ROLES = Roles()


def parse_roles(texts: Sequence[str], external_id: str | None) -> Roles:
    """Return the roles of ``--role [STREAM=]ARN``. Raises ConfigurationError."""
    if external_id and not texts:
        raise ConfigurationError("--external-id needs a role: give --role too")
    return Roles(_by_stream("--role", texts, "role"), external_id)


def with_fan_out(
    streams: Sequence[Stream], texts: Sequence[str], *, fallback: bool
) -> list[Stream]:
    """Return streams with the consumers of ``--fan-out [STREAM=]NAME``.

    Raises ConfigurationError.
    """
    if fallback and not texts:
        raise ConfigurationError("--fan-out-fallback needs --fan-out: give both")
    consumers = _by_stream("--fan-out", texts, "consumer")
    _require_named("--fan-out", consumers, [stream.name for stream in streams])
    found = [_value_for(stream.name, consumers) for stream in streams]
    return [
        replace(one, fan_out=name, fan_out_fallback=fallback)
        if name is not None
        else one
        for one, name in zip(streams, found, strict=True)
    ]


def _by_stream(option: str, texts: Sequence[str], what: str) -> dict[str, str]:
    """Return the values of an option ``[STREAM=]VALUE`` by stream; "" for all."""
    found: dict[str, str] = {}
    for text in texts:
        stream, _, value = text.rpartition("=")
        if stream in found:
            raise ConfigurationError(
                f"{option} {text}: {stream or 'all streams'} already has a {what}; "
                f"give one {what} for each stream"
            )
        found[stream] = value
    return found


def _value_for(name: str, by_stream: Mapping[str, str]) -> str | None:
    """Return the value for a stream, given by name or ARN; None if it has none."""
    keys = (name, stream_name(name), "")
    return next((by_stream[key] for key in keys if key in by_stream), None)


def _require_named(
    option: str, by_stream: Mapping[str, str], names: Sequence[str]
) -> None:
    known = {"", *names, *(stream_name(name) for name in names)}
    for stream, value in by_stream.items():
        if stream not in known:
            raise ConfigurationError(
                f"{option} {stream}={value}: stream {stream!r} isn't named in this "
                f"command; name one of {', '.join(names)}"
            )


@asynccontextmanager
async def connect(
    table: str, region: str | None, *, waits: bool = False
) -> AsyncIterator[tuple[ClientFactory, OperatorStore]]:
    """Open and verify the state store; also yield the factory of AWS clients.

    For a caller that ``waits`` for the store, a store that does not answer is no error.
    """
    async with ClientFactory(region=region) as clients:
        store = await open_operator_store(clients, table)
        with suppress(*([TransientError] if waits else [])):
            await store.verify()
        yield clients, store


# A person waits for a command, so it fails if AWS doesn't answer within this time.
RETRY_SECONDS = 30.0


def operator_context(app: str, store: StateStore) -> ClientContext:
    """Return the context of a command. Raises ConfigurationError for an invalid app."""
    validate_name("app", app)
    clock, draws = SystemClock(), random.Random()
    history = open_history(clock, os.environ)
    if history is not None:
        history.begin(app, OPERATOR, commit="")
    return ClientContext.create(
        app=app,
        client_id=OPERATOR,
        store=PacedStore(recorded(store, history), clock, draws),
        clock=clock,
        random=draws,
        new_id=lambda: uuid.uuid4().hex,
        retry_seconds=RETRY_SECONDS,
    )


@contextmanager
def report_partial_failure(advice: str) -> Iterator[None]:
    """Add ``advice`` to an error or interruption that may leave some writes undone."""
    try:
        yield
    except asyncio.CancelledError:
        logger.warning("interrupted: %s", advice)
        raise
    except ConfigurationError:
        raise
    except KinesumerError as error:
        raise KinesumerError(f"{error}; {advice}") from error


async def require_no_clients(context: ClientContext) -> None:
    """Raise GroupBusyError if clients or a Spark query consume under the app.

    Marks crashed clients dead, after waiting until their leases expire (8 s).
    """
    latest: list[LivenessRow] = []

    async def members() -> list[LivenessRow]:
        latest[:] = await read_all_liveness(context)
        return latest

    if living := await find_live_members(context, members):
        # The check ends at the first heartbeat, so the other members may be alive too.
        rest = [p.client_id for p in latest if not p.dead and p not in living]
        names = ", ".join(member.client_id for member in living)
        names += f", and perhaps {', '.join(rest)}" if rest else ""
        raise GroupBusyError(
            "clients",
            f"clients of app {context.app!r} are alive: {escape_unprintable(names)}; "
            "stop them first",
        )
