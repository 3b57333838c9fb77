"""What isn't a letter, in SQS, S3 and Kinesis: named, left there, in nobody's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.aws.session import ClientFactory
from kinesumer.dead_letters.targets import open_readable
from kinesumer.local import EmbeddedAws
from tests.unit.dead_letters.test_targets import LETTER, clients, stored, target, url

if TYPE_CHECKING:
    import pytest

__all__ = ["clients", "target", "url"]

STRANGERS = [b"no letter", b"[" * 100_000, b'{"version":2}', b"\xff\x00"]


async def leave(clients: ClientFactory, target: str, name: str, content: bytes) -> None:
    kind, _, place = target.partition(":")
    if kind == "s3":
        s3 = (await clients.open("s3")).client
        bucket, _, folder = place.removeprefix("//").partition("/")
        await s3.put_object(Bucket=bucket, Key=f"{folder}/{name}", Body=content)
        return
    text = content.decode(errors="replace")
    more = {"MessageGroupId": name, "MessageDeduplicationId": name}
    sqs = (await clients.open("sqs")).client
    await sqs.send_message(
        QueueUrl=place, MessageBody=text, **(more if place.endswith("fifo") else {})
    )


async def test_what_is_no_letter_is_named_and_stays(
    clients: ClientFactory, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.dead_letters.s3.MOST_BYTES", 1 << 17)
    letters = await open_readable(target, clients)
    await letters.put(LETTER)
    large = b"x" * (1 << 18)
    for number, content in enumerate([*STRANGERS, large]):
        await leave(clients, target, f"{number}.json", content)
    found = await stored(letters)
    assert [one.letter for one in found if one.letter] == [LETTER]
    problems = [one.problem for one in found if not one.letter]
    assert len(problems) == 5
    in_s3 = target.startswith("s3:")
    start = f"{target}/" if in_s3 else "message "
    assert all(text.startswith(start) for text in problems)
    if in_s3:
        assert problems[4] == f"{start}4.json: not a dead letter: it has 262,144 bytes"
    await letters.remove([one for one in found if one.letter])
    await letters.aclose()
    again = await stored(letters)
    assert sorted(one.problem for one in again) == sorted(problems)
    await letters.remove(again)
    await letters.aclose()


async def test_records_of_a_stream_that_are_no_letters_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with EmbeddedAws() as aws:
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        aws.create_stream("dead")
        numbers = [aws.put("dead", content, "k")[1] for content in STRANGERS]
        async with ClientFactory() as clients:
            letters = await open_readable("kinesis:dead", clients)
            await letters.put(LETTER)
            found = await stored(letters)
    assert [one.letter for one in found if one.letter] == [LETTER]
    for number, one in zip(numbers, found, strict=False):
        assert f"/{number}: not a dead letter" in one.problem
