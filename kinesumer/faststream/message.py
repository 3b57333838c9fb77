"""Make FastStream's messages of records, and note what handlers decide about them."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from faststream.message import StreamMessage, decode_message
from faststream.message.message import AckStatus

from kinesumer.errors import KinesumerError
from kinesumer.faststream import envelope
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Record

RawMessage = Record[bytes] | Batch[bytes]


class NotAckedError(KinesumerError):
    """A handler has not acknowledged its message, so the record has failed."""


class RejectedError(NotAckedError):
    """A handler has rejected its message, so the record is not tried again."""


class Outcome:
    """The decision of a handler about its current message."""

    status: AckStatus | None = None


# FastStream makes the message where nothing is known but the record.
OUTCOME: ContextVar[Outcome | None] = ContextVar("kinesumer-outcome", default=None)


class _Message(StreamMessage[Any]):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outcome = OUTCOME.get()

    async def ack(self) -> None:
        """Say that the record is done."""
        await super().ack()
        self._note()

    async def nack(self) -> None:
        """Say that the record has failed: it is retried, or becomes a dead letter."""
        await super().nack()
        self._note()

    async def reject(self) -> None:
        """Say that the record is not to be tried again.

        It becomes a dead letter, if the subscriber has a target for them. Otherwise it
        is done.
        """
        await super().reject()
        self._note()

    def _note(self) -> None:
        if self._outcome is not None:
            self._outcome.status = self.committed


class KinesisMessage(_Message):
    """A message, and its ``Record`` as ``raw_message``.

    Nothing is sent when a handler calls ``ack()``, ``nack()`` or ``reject()``: the
    record is done, or has failed, when the handler ends. The first call counts.
    """

    raw_message: Record[bytes]


class KinesisBatchMessage(_Message):
    """The messages of a batch in one, and the ``Batch`` as ``raw_message``.

    A decision about it is one about all records of the batch.
    """

    raw_message: Batch[bytes]


async def parse_record(record: Record[bytes]) -> KinesisMessage:
    """Return the message of a record, whether FastStream or another producer put it."""
    body, headers = envelope.decode(record.data)
    return KinesisMessage(record, body, **_fields(headers, record.position))


async def decode_record(message: StreamMessage[Any]) -> Any:
    """Return the value of a message, as its content type says."""
    return decode_message(message)


async def parse_batch(batch: Batch[bytes]) -> KinesisBatchMessage:
    """Return the message of a batch. Its headers are those of the first record."""
    parts = [envelope.decode(record.data) for record in batch.records]
    fields = _fields(parts[0][1], batch.records[-1].position)
    bodies, all_headers = zip(*parts, strict=True)
    return KinesisBatchMessage(batch, [*bodies], batch_headers=[*all_headers], **fields)


# FastStream knows by this name that it decodes batches.
async def decode_batch(message: StreamMessage[Any]) -> list[Any]:
    """Return the values of a batch's records."""
    records = message.raw_message.records
    return [decode_message(await parse_record(record)) for record in records]


def data_of(message: StreamMessage[Any]) -> list[bytes]:
    """Return the bodies of a message's records."""
    return message.body if isinstance(message.body, list) else [message.body]


def _fields(headers: dict[str, str], position: Position) -> dict[str, Any]:
    return {
        "headers": headers,
        "reply_to": headers.get("reply_to", ""),
        "content_type": headers.get("content-type"),
        "correlation_id": headers.get("correlation_id"),
        "message_id": headers.get("message_id", position.text),
    }
