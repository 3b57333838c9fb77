"""Commands that publish messages, with the stream and the keys of their records."""

from __future__ import annotations

from typing import Any, Self, TypedDict, Unpack

from faststream.response import (
    BatchPublishCommand,
    PublishCommand,
    PublishType,
    Response,
)


class RecordKeywords(TypedDict, total=False):
    """The keyword arguments that say how a message becomes a record."""

    partition_key: str | None
    explicit_hash_key: str | None
    headers: dict[str, Any] | None


class PublishKeywords(RecordKeywords, total=False):
    """The keyword arguments of ``publish()``."""

    correlation_id: str | None
    reply_to: str
    no_confirm: bool


class KinesisResponse(Response):
    """A handler's result, with the keys by which Kinesis chooses its shard."""

    def __init__(
        self,
        body: Any,
        *,
        partition_key: str | None = None,
        explicit_hash_key: str | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.partition_key, self.explicit_hash_key = partition_key, explicit_hash_key

    def as_publish_command(self) -> KinesisPublishCommand:
        """Return what publishes the result."""
        return KinesisPublishCommand(
            self.body,
            partition_key=self.partition_key,
            explicit_hash_key=self.explicit_hash_key,
            headers=self.headers,
            correlation_id=self.correlation_id,
        )

    def get_publish_key(self) -> str | None:
        """Return the partition key."""
        return self.partition_key


class KinesisPublishCommand(BatchPublishCommand):
    """One or more messages to publish. ``destination`` is the stream."""

    def __init__(
        self,
        body: Any,
        /,
        *bodies: Any,
        destination: str = "",
        publish_type: PublishType = PublishType.PUBLISH,
        **options: Unpack[PublishKeywords],
    ) -> None:
        super().__init__(
            body,
            *bodies,
            _publish_type=publish_type,
            destination=destination,
            headers=options.get("headers"),
            correlation_id=options.get("correlation_id"),
            reply_to=options.get("reply_to", ""),
        )
        self.partition_key = options.get("partition_key")
        self.explicit_hash_key = options.get("explicit_hash_key")
        self.no_confirm = options.get("no_confirm", False)

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> Self:
        """Return a command of FastStream's as one for Kinesis.

        With ``batch``, a body that is a sequence has several messages.
        """
        made = cmd
        if not isinstance(made, cls):
            made = cls(
                cmd.body,
                headers=cmd.headers,
                correlation_id=cmd.correlation_id,
                reply_to=cmd.reply_to,
                destination=cmd.destination,
                publish_type=cmd.publish_type,
            )
        if batch:
            made.body, made.extra_bodies = cls._parse_bodies(made.body, batch=True)
        return made

    @property
    def record_headers(self) -> dict[str, str]:
        """The headers of each message, without its content type."""
        own = {"correlation_id": self.correlation_id, "reply_to": self.reply_to}
        found = {name: value for name, value in own.items() if value}
        return found | {name: str(value) for name, value in self.headers.items()}
