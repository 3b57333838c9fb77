"""Store dead letters in an SQS queue, as messages with the letters' JSON.

While a reader has a message, SQS hides it from other readers: for ten minutes, or until
``aclose`` releases it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kinesumer.aws.clients import OpenClient
from kinesumer.aws.endpoints import check_port, require_no_credentials
from kinesumer.aws.errors import call_errors
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import (
    ConfigurationError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    FatalError,
)
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    ReadableDeadLetters,
    StoredEntry,
    encode_letter,
    put_what_fits,
    read_entry,
)
from kinesumer.runtime.text import SECRETS

# SQS's limit for any message. A queue's MaximumMessageSize may be lower.
LONGEST_BYTES = 1 << 20
# Messages that were read stay hidden for this time, so that an operator can decide what
# to do with them. Chosen: in ten minutes one can read some letters and answer.
HIDDEN_SECONDS = 600
# If ReceiveMessage waits (long polling), SQS asks all its servers, so an empty answer
# means an empty queue. Chosen: a person waits for that answer.
WAIT_SECONDS = 2
# SQS takes and returns at most this many messages per call.
AT_ONCE = 10

_REGION = re.compile(r"(?:^|\.)sqs\.([a-z]+(?:-[a-z0-9]+)+)\.")


class Message(NamedTuple):
    """A received message. Each time it is received, it has another handle."""

    id: str
    handle: str


async def open_queue(clients: ClientFactory, url: str) -> SqsLetters:
    """Open a queue as a target. If the URL is one of AWS, it gives the region, too.

    Raises ConfigurationError if the URL isn't that of a queue.
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


class SqsLetters(ReadableDeadLetters):
    """Stores letters in a queue, standard or FIFO."""

    removes = True

    def __init__(self, opened: OpenClient, url: str) -> None:
        self._opened, self._url = opened, url
        self._sqs: Any = opened.client
        self._held: dict[str, Message] = {}

    async def put(self, letter: DeadLetter) -> None:
        """Send a letter, without the record's data if that is too large.

        Raises DeadLetterTooLargeError if the queue accepts even less.
        """
        await put_what_fits(letter, self._send)

    async def _send(self, letter: DeadLetter) -> None:
        body = encode_letter(letter).decode()
        if len(body) > LONGEST_BYTES:
            raise self._too_large(
                len(body), f"SQS accepts at most {LONGEST_BYTES:,} bytes"
            )
        arguments = {"QueueUrl": self._url, "MessageBody": body}
        if self._url.endswith(".fifo"):
            # Each letter has a group of its own, so that no letter waits for another.
            arguments["MessageGroupId"] = letter.id
            arguments["MessageDeduplicationId"] = letter.id
        try:
            with self._call("SendMessage"):
                answer = await self._sqs.send_message(**arguments)
                _ = answer["MessageId"]  # a proxy's page is no proof
        except FatalError as error:
            if "must be shorter than" in str(error):
                raise self._too_large(len(body), str(error)) from error
            raise

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Yield messages until the queue is empty; standard queues may repeat some."""
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
            # A message that became visible again is received a second time, with a new
            # handle. Don't yield it again.
            new = [(m, body) for m, body in found if m.id not in self._held]
            self._held.update((message.id, message) for message, _ in found)
            for message, body in new:
                yield read_entry(message, body, f"message {message.id}")

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Delete messages. Raises FatalError with the number of those that remain."""
        for messages in self._batches([_message(one) for one in stored]):
            with self._call("DeleteMessageBatch", "DeleteMessage"):
                answer = await self._sqs.delete_message_batch(
                    QueueUrl=self._url, Entries=_entries(messages)
                )
            if answer.get("Failed"):
                reason = SECRETS.redact(answer["Failed"][0].get("Message", ""))
                raise FatalError(
                    f"{len(answer['Failed'])} messages weren't deleted from "
                    f"{self._url}: {reason}; expect them again"
                )
            with self._call("DeleteMessageBatch", "DeleteMessage"):
                _ = answer["Successful"]  # a proxy's page is no proof
            for message in messages:
                self._held.pop(message.id, None)

    async def aclose(self) -> None:
        """Release the messages that were read and not removed."""
        held, self._held = list(self._held.values()), {}
        for messages in self._batches(held):
            # If this call fails, the messages become visible after HIDDEN_SECONDS.
            with self._call("ChangeMessageVisibilityBatch", "ChangeMessageVisibility"):
                await self._sqs.change_message_visibility_batch(
                    QueueUrl=self._url, Entries=_entries(messages, VisibilityTimeout=0)
                )

    def _call(self, operation: str, action: str = "") -> Any:
        action = f"sqs:{action or operation}"
        unavailable = DeadLettersUnavailableError
        return call_errors(action, self._url, unavailable, self._opened.keys)

    def _too_large(self, size: int, limit: str) -> DeadLetterTooLargeError:
        return DeadLetterTooLargeError(
            f"a dead letter of {size:,} bytes is too large for {self._url}: {limit}; "
            "keep letters in S3 or in a file"
        )

    def _batches(self, messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
        # Only the handle from the last receive of a message is valid.
        latest = [self._held.get(one.id, one) for one in messages]
        return (latest[i : i + AT_ONCE] for i in range(0, len(latest), AT_ONCE))


def _message(stored: StoredEntry) -> Message:
    assert isinstance(stored.receipt, Message)
    return stored.receipt


def _entries(messages: Sequence[Message], **more: object) -> list[dict[str, object]]:
    return [
        {"Id": str(place), "ReceiptHandle": message.handle, **more}
        for place, message in enumerate(messages)
    ]
