"""Connect to the state store, and choose the role that reads each stream."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kinesumer.errors import ConfigurationError, TransientError
from kinesumer.model.streams import Stream, stream_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from kinesumer.aws.dynamodb import DynamoStateStore
    from kinesumer.aws.session import ClientFactory


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
    return [
        stream
        if (consumer := _value_for(stream.name, consumers)) is None
        else replace(stream, fan_out=consumer, fan_out_fallback=fallback)
        for stream in streams
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
) -> AsyncIterator[tuple[ClientFactory, DynamoStateStore]]:
    """Open and verify the state store; also yield the factory of AWS clients.

    A caller that ``waits`` for the store reads it again and again, and shows failures.
    Then a store that does not answer is no error.
    """
    # Imported here since these modules load slowly and --help doesn't need them.
    from kinesumer.aws.dynamodb import open_store
    from kinesumer.aws.session import ClientFactory

    async with ClientFactory(region=region) as clients:
        store = await open_store(clients, table)
        with suppress(*([TransientError] if waits else [])):
            await store.verify()
        yield clients, store
