"""Test dead letters in a function and a stream, and in SQS and S3 of moto."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters import DeadLetter, open_dead_letters
from kinesumer.errors import (
    ConfigurationError,
    DeadLettersUnavailableError,
    DeadLetterTooLargeError,
    DecodeError,
    FatalError,
)
from kinesumer.handlers.dead_letters.letter import (
    LetterWithoutData,
    ReadableDeadLetters,
    decode_letter,
    encode_letter,
    smaller_letters,
)
from kinesumer.handlers.dead_letters.targets import open_readable, open_target
from kinesumer.testing import EmbeddedAws, record
from kinesumer.testing.embedded_aws.faults import Kind
from tests.support.letters import LETTER, NUMBERS, stored


async def test_a_letter_is_read_as_it_was_put_and_gone_when_removed(
    clients: ClientFactory, target: str
) -> None:
    letters = await open_readable(target, clients)
    await letters.put(LETTER)
    assert [one.letter for one in await stored(letters)] == [LETTER]
    await letters.aclose()  # a letter that was only read stays for other readers
    found = await stored(letters)
    assert [one.letter for one in found] == [LETTER]
    await letters.remove(found)
    await letters.aclose()
    assert await stored(letters) == []


async def queue_of(clients: ClientFactory, most_bytes: int) -> ReadableDeadLetters:
    """Return a new queue that takes messages up to this size."""
    sqs = (await clients.open("sqs")).client
    answer = await sqs.create_queue(
        QueueName=f"letters-{next(NUMBERS)}",
        Attributes={"MaximumMessageSize": str(most_bytes)},
    )
    return await open_readable(f"sqs:{answer['QueueUrl']}", clients)


@pytest.mark.parametrize("size", [2_000, 1 << 20])
@pytest.mark.parametrize("most_bytes", [1024, 64 * 1024])
async def test_a_letter_that_sqs_cannot_take_is_stored_without_data(
    clients: ClientFactory,
    caplog: pytest.LogCaptureFixture,
    size: int,
    most_bytes: int,
) -> None:
    letters = await queue_of(clients, most_bytes)
    large = msgspec.structs.replace(
        LETTER,
        data=bytes(size),
        error="E: " + "x" * 1990,
        traceback="t" * 10_000,
        partition_key="k" * 2_000,
    )
    await letters.put(large)
    [one] = await stored(letters)
    if size < 1 << 20 and most_bytes > 1024:
        assert one.letter == large
        return
    assert isinstance(one.letter, LetterWithoutData)
    assert (one.letter.id, one.letter.data) == (large.id, b"")
    assert (one.letter.data_bytes, one.letter.partition_key) == (size, None)
    assert len(one.letter.error) < (210 if most_bytes == 1024 else 2_000)
    assert bool(one.letter.traceback) == (most_bytes > 1024)
    [line] = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert "too large for http" in line
    assert "shardId-000000000000, sequence number 4959" in line


async def test_a_letter_is_refused_if_not_even_its_position_fits(
    clients: ClientFactory,
) -> None:
    letters = await queue_of(clients, 1024)
    with pytest.raises(DeadLetterTooLargeError, match="keep letters in S3"):
        await letters.put(msgspec.structs.replace(LETTER, app="a" * 2_000))
    assert await stored(letters) == []


async def test_a_version_that_knows_no_letters_without_data_cannot_read_one() -> None:
    _, without, _ = smaller_letters(LETTER)
    body = encode_letter(without)
    assert decode_letter(body) == without
    with pytest.raises(msgspec.ValidationError, match="Invalid value 2"):
        msgspec.json.decode(body, type=DeadLetter)


@pytest.mark.parametrize("place", ["s3://nowhere/dead", "sqs:{url}/1/nowhere"])
async def test_a_target_that_is_not_there_is_no_fault_that_passes(
    clients: ClientFactory, url: str, place: str
) -> None:
    letters = await open_target(place.format(url=url), clients)
    with pytest.raises(FatalError, match="nowhere"):
        await letters.put(LETTER)


async def test_a_function_gets_the_letter_and_its_error_is_raised(
    clients: ClientFactory,
) -> None:
    async def take(letter: DeadLetter) -> None:
        raise ZeroDivisionError(letter.id)

    letters = await open_target(take, clients)
    with pytest.raises(ZeroDivisionError, match=LETTER.id):
        await letters.put(LETTER)


async def test_a_plain_function_is_refused_with_the_first_letter(
    clients: ClientFactory,
) -> None:
    kept: list[DeadLetter] = []
    letters = await open_target(kept.append, clients)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="`async def`"):
        await letters.put(LETTER)


@pytest.mark.parametrize("target", ["standard"], indirect=True)
async def test_a_target_may_be_opened_with_clients_of_its_own(
    url: str, target: str
) -> None:
    letters = await open_dead_letters(target, region="us-east-1")
    await letters.put(LETTER)
    await letters.aclose()
    async with ClientFactory(region="us-east-1") as clients:
        readable = await open_readable(target, clients)
        assert [stored.letter async for stored in readable.read()] == [LETTER]
        await readable.aclose()


@pytest.mark.parametrize(
    "wrong", ["", "letters", "ftp:x", "file:", "s3:b", "s3:///p", 7]
)
async def test_what_names_no_target_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"dead-letter target|a target's name"):
        await open_dead_letters(wrong)


async def test_a_file_in_a_missing_directory_is_refused(
    clients: ClientFactory, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="missing does not exist: create it"):
        await open_target(f"file:{tmp_path}/missing/dead.jsonl", clients)


def test_the_letter_of_an_undecodable_record_says_why() -> None:
    undecodable = record(b"{")
    with pytest.raises(DecodeError) as caught:
        undecodable.json()
    letter = DeadLetter.of(
        undecodable, caught.value, app="a", attempts=1, failed_at=0.0
    )
    assert letter.error == "DecodeError: msgspec.DecodeError: Input data was truncated"


async def test_a_file_waits_for_a_thread_and_a_descriptor_that_the_system_refuses(
    clients: ClientFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = await open_readable(f"file:{tmp_path / 'dead'}", clients)
    start, refusals = threading.Thread.start, [*range(3)]

    def limited(thread: threading.Thread) -> None:
        if refusals:
            refusals.pop()
            raise RuntimeError("can't start new thread")
        start(thread)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("kinesumer.runtime.threads.RETRY_SECONDS", 0.01)
    monkeypatch.setattr(threading.Thread, "start", limited)
    # Refuse it to this target only, since the servers of moto share the process.
    with monkeypatch.context() as patch:
        patch.setattr("kinesumer.handlers.dead_letters.file.os.open", refuse)
        with pytest.raises(DeadLettersUnavailableError, match="Too many open files"):
            await letters.put(LETTER)
    await letters.put(LETTER)
    assert [one.letter for one in await stored(letters)] == [LETTER]
    assert not refusals
    await letters.aclose()


async def test_a_letter_is_not_stored_if_a_page_of_a_proxy_says_so(
    clients: ClientFactory, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters: Any = await open_readable(target, clients)
    client = letters._s3 if target.startswith("s3:") else letters._sqs

    async def page(**_: object) -> dict[str, Any]:
        """Return what botocore makes of a page with status 200."""
        return {"ResponseMetadata": {"HTTPStatusCode": 200}}

    with monkeypatch.context() as patch:
        for name in ("put_object", "send_message"):
            patch.setattr(client, name, page, raising=False)
        with pytest.raises(DeadLettersUnavailableError, match="isn't from AWS"):
            await letters.put(LETTER)
    assert await stored(letters) == []
    await letters.put(LETTER)
    found = await stored(letters)
    monkeypatch.setattr(client, "delete_message_batch", page, raising=False)
    if not target.startswith("s3:"):
        with pytest.raises(DeadLettersUnavailableError, match="isn't from AWS"):
            await letters.remove(found)


@pytest.mark.parametrize("kind", ["expired_iterator", "throttle", "error"])
async def test_reading_goes_on_after_a_fault_that_passes(
    kinesumer_aws: EmbeddedAws, kind: Kind
) -> None:
    """A shard iterator expires while the reader takes its time over a page."""
    kinesumer_aws.create_stream("letters", 1)
    async with ClientFactory() as clients:
        letters = await open_readable("kinesis:letters", clients)
        await letters.put(LETTER)
        kinesumer_aws.fault(kind, operation="GetRecords", count=1)
        found = [one.letter async for one in letters.read()]
    assert found == [LETTER]


async def test_a_letter_that_lacks_usable_keys_says_so(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("letters", 1)
    async with ClientFactory() as clients:
        letters = await open_target("kinesis:letters", clients)
        kinesumer_aws.replace_keys()
        with pytest.raises(DeadLettersUnavailableError) as raised:
            await letters.put(LETTER)
    assert raised.value.lacks_credentials
