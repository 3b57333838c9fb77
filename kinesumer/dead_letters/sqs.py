"""Dead letters in an SQS queue: one message each, its body the letter's JSON.

SQS has no look without taking: what is read is hidden from others for ten minutes, or
until ``aclose`` gives it back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kinesumer.aws.endpoints import check_port, require_no_credentials
from kinesumer.dead_letters.base import StoredEntry
from kinesumer.dead_letters.calls import RefusedCallError, translated
from kinesumer.dead_letters.letter import decode_letter, encode_letter
from kinesumer.errors import (
    ConfigurationError,
    CorruptDeadLetterError,
    DeadLetterTooLargeError,
    FatalError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from kinesumer.aws.session import ClientFactory, OpenClient
    from kinesumer.dead_letters.letter import DeadLetter

LONGEST_BYTES = 1 << 20
"""What SQS takes at most; a queue's MaximumMessageSize may be less."""
HIDDEN_SECONDS = 600
WAIT_SECONDS = 2
"""A receive that waits asks all of SQS's servers: an empty answer means empty."""
AT_ONCE = 10

_REGION = re.compile(r"(?:^|\.)sqs\.([a-z]{2}(?:-[a-z0-9]+)+)\.")


class Message(NamedTuple):
    """A message that was received: its id stays, its handle is of this receive."""

    id: str
    handle: str


async def open_queue(clients: ClientFactory, url: str) -> SqsLetters:
    """Return a queue, in the region that its URL names if it is one of AWS's.

    Raises ConfigurationError for what isn't a queue's URL.
    """
    require_no_credentials("the queue's URL", url)
    check_port(f"queue {url!r}", url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.path.count("/") < 2:
        raise ConfigurationError(
            f"{url!r} must be a queue's URL, such as "
            "https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
        )
    named = _REGION.search(parts.hostname or "")
    return SqsLetters(await clients.open("sqs", named and named[1]), url)


class SqsLetters:
    """Keeps letters in a queue, standard or FIFO."""

    removes = True

    def __init__(self, opened: OpenClient, url: str) -> None:
        self._opened, self._url = opened, url
        self._sqs: Any = opened.client
        self._held: dict[str, Message] = {}

    async def put(self, letter: DeadLetter) -> None:
        """Send a letter. Raises DeadLetterTooLargeError if the queue refuses it."""
        body = encode_letter(letter).decode()
        if len(body) > LONGEST_BYTES:
            raise self._too_large(len(body), f"SQS takes {LONGEST_BYTES:,}")
        arguments = {"QueueUrl": self._url, "MessageBody": body}
        if self._url.endswith(".fifo"):
            # A group of its own: letters have no order that one could hold up.
            arguments["MessageGroupId"] = letter.id
            arguments["MessageDeduplicationId"] = letter.id
        try:
            with self._call("SendMessage"):
                await self._sqs.send_message(**arguments)
        except RefusedCallError as error:
            if "must be shorter than" in str(error):
                raise self._too_large(len(body), str(error)) from error
            raise

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Receive until nothing comes any more; standard queues may repeat some."""
        while True:
            with self._call("ReceiveMessage"):
                answer = await self._sqs.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=AT_ONCE,
                    VisibilityTimeout=HIDDEN_SECONDS,
                    WaitTimeSeconds=WAIT_SECONDS,
                )
                found = [
                    (Message(one["MessageId"], one["ReceiptHandle"]), one["Body"])
                    for one in answer.get("Messages", ())
                ]
            if not found:
                return
            new = [(m, body) for m, body in found if m.id not in self._held]
            self._held.update((message.id, message) for message, _ in found)
            for message, body in new:
                yield _stored(message, body)

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Delete messages. Raises FatalError naming how many SQS wouldn't delete."""
        for messages in self._batches([_message(one) for one in stored]):
            with self._call("DeleteMessageBatch", "DeleteMessage"):
                answer = await self._sqs.delete_message_batch(
                    QueueUrl=self._url, Entries=_entries(messages)
                )
            if answer.get("Failed"):
                reason = answer["Failed"][0].get("Message", "")
                raise FatalError(
                    f"{len(answer['Failed'])} messages weren't deleted from "
                    f"{self._url}: {reason}; they come again"
                )
            for message in messages:
                self._held.pop(message.id, None)

    async def aclose(self) -> None:
        """Let others see at once what was read and not removed."""
        held, self._held = list(self._held.values()), {}
        for messages in self._batches(held):
            # Where it fails, they are seen again when their time is over.
            with self._call("ChangeMessageVisibilityBatch", "ChangeMessageVisibility"):
                await self._sqs.change_message_visibility_batch(
                    QueueUrl=self._url, Entries=_entries(messages, VisibilityTimeout=0)
                )

    def _call(self, operation: str, action: str = "") -> Any:
        return translated(self._opened, f"sqs:{action or operation}", self._url)

    def _too_large(self, size: int, limit: str) -> DeadLetterTooLargeError:
        return DeadLetterTooLargeError(
            f"a dead letter of {size:,} bytes is too large for {self._url}: {limit}; "
            "keep letters in S3 or in a file"
        )

    def _batches(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        # The handles of the last receive are those that count.
        latest = [self._held.get(one.id, one) for one in messages]
        return (latest[i : i + AT_ONCE] for i in range(0, len(latest), AT_ONCE))


def _stored(message: Message, body: str) -> StoredEntry:
    try:
        return StoredEntry(message, decode_letter(body))
    except CorruptDeadLetterError as error:
        return StoredEntry(message, None, f"message {message.id}: {error}")


def _message(stored: StoredEntry) -> Message:
    assert isinstance(stored.receipt, Message)
    return stored.receipt


def _entries(messages: Sequence[Message], **more: object) -> list[dict[str, object]]:
    return [
        {"Id": str(place), "ReceiptHandle": message.handle, **more}
        for place, message in enumerate(messages)
    ]
