"""Code the loads of a member's shards as a short text in the member's row.

The text is a head and entries. The head is ``LETTERS INDEX:ENTRIES …|``: with how many
letters an entry counts its shards, and how many entries each stream has. A stream is an
index into the sorted streams that the member requests. An entry is the highest 18 bits
of the first shard's starting hash key, in three letters; the number of its shards less
one, in two letters, or in none if each entry is of one shard; the bytes and the records
per second, in one letter each; and the handler's seconds per second, in two. The rates
are on logarithmic scales, in steps of 16 % with one letter and of 0.3 % with two.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log
from typing import NamedTuple

from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.streams import HASH_KEYS
from kinesumer.wire.fields import MAX_READ_LETTERS

# A plan by load needs at least so many entries, even if they cost another write unit.
LEAST_ENTRIES, MAX_ENTRIES = 10, 60
KEY_SIZE, COUNT_SIZE, RATES_SIZE = 3, 2, 4
# The letters of hash keys and of rates; the value of a letter is its place.
KEY_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
RATE_LETTERS = "".join(map(chr, range(33, 127)))
KEY_UNIT = HASH_KEYS >> 18


class Scale(NamedTuple):
    """The logarithmic scale on which a rate is coded."""

    least: float  # lower rates are coded as 0
    decades: int
    letters: int

    @property
    def levels(self) -> int:
        """The number of levels, of which the first is 0."""
        return int(len(RATE_LETTERS) ** self.letters)

    @property
    def step(self) -> float:
        """The logarithm of the factor between two levels."""
        return self.decades * log(10) / (self.levels - 2)


SCALES = Scale(30.0, 6, 1), Scale(0.03, 6, 1), Scale(1e-6, 9, 2)


def max_entries(room: int, streams: int, shards: int) -> int:
    """Return how many entries fit into ``room`` bytes of a text.

    The text names ``streams`` streams. If there are more ``shards`` than entries,
    entries must count their shards, and take more room.
    """
    room -= len("0|") + streams * len(f" {streams}:{MAX_ENTRIES}")
    single, counted = (
        max(0, min(MAX_ENTRIES, room // (KEY_SIZE + size + RATES_SIZE)))
        for size in (0, COUNT_SIZE)
    )
    return single if shards <= single else counted


def load_text(reports: Sequence[LoadReport], streams: frozenset[str]) -> str:
    """Return the stored text of reports of ``streams``, which are in order."""
    if not reports:
        return ""
    index = {arn: at for at, arn in enumerate(sorted(streams))}
    entries = Counter(index[report.stream_arn] for report in reports)
    size = COUNT_SIZE if any(report.shards > 1 for report in reports) else 0
    counts = "".join(f" {at}:{count}" for at, count in entries.items())
    return f"{size}{counts}|{''.join(_entry(report, size) for report in reports)}"


def _entry(report: LoadReport, size: int) -> str:
    first = report.first_hash // KEY_UNIT
    key = "".join(KEY_LETTERS[first >> shift & 63] for shift in (12, 6, 0))
    count = _letters(report.shards - 1, size)
    return key + count + "".join(map(_rate_text, report.load, SCALES))


def _letters(number: int, size: int) -> str:
    high, low = divmod(number, len(RATE_LETTERS))
    return (RATE_LETTERS[high] + RATE_LETTERS[low])[-size:] if size else ""


def _rate_text(rate: float, scale: Scale) -> str:
    level = (
        round(log(rate / scale.least) / scale.step) + 1 if rate >= scale.least else 0
    )
    return _letters(min(level, scale.levels - 1), scale.letters)


def read_loads(text: str, streams: frozenset[str]) -> list[LoadReport]:
    """Parse the stored text of loads. Return nothing if it is invalid."""
    # Loads only help to plan, so invalid ones are ignored.
    head = _HEAD.match(text) if len(text) <= MAX_READ_LETTERS else None
    if head is None:
        return []
    size, names = int(head[1]), sorted(streams)
    counts = [tuple(map(int, pair.split(":"))) for pair in head[2].split()]
    if any(index >= len(names) for index, _ in counts):
        return []
    letters = KEY_SIZE + size + RATES_SIZE
    body = text[head.end() :]
    # Compare the counts with the length before they are expanded.
    if len(body) != letters * sum(count for _, count in counts):
        return []
    if not _BODIES[size].fullmatch(body):
        return []
    arns = [names[index] for index, count in counts for _ in range(count)]
    return [
        _report(arn, body[letters * at : letters * (at + 1)])
        for at, arn in enumerate(arns)
    ]


_HEAD = re.compile(rf"([0{COUNT_SIZE}])((?: [0-9]{{1,6}}:[0-9]{{1,4}})+)\|", re.ASCII)
_BODIES = {
    size: re.compile(rf"(?:[\w-]{{3}}[!-~]{{{size + RATES_SIZE}}})*", re.ASCII)
    for size in (0, COUNT_SIZE)
}


def _report(arn: str, entry: str) -> LoadReport:
    first = 0
    for letter in entry[:KEY_SIZE]:
        first = first * len(KEY_LETTERS) + KEY_LETTERS.index(letter)
    count, rates = entry[KEY_SIZE:-RATES_SIZE], entry[-RATES_SIZE:]
    load = Load(*map(_rate, (rates[0], rates[1], rates[2:]), SCALES))
    return LoadReport(arn, first * KEY_UNIT, 1 + _number(count), load)


def _rate(text: str, scale: Scale) -> float:
    level = _number(text)
    return scale.least * exp((level - 1) * scale.step) if level else 0.0


def _number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * len(RATE_LETTERS) + RATE_LETTERS.index(letter)
    return number
