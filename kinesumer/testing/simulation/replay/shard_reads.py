"""The recorded reads of shards: which iterator led to which pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard
from kinesumer.testing.simulation.replay.recorded_run import RecordedCall


@dataclass(eq=False)
class Chain:
    """An iterator, and the calls of GetRecords after it."""

    call: RecordedCall | None  # None if the iterator is older than the recording
    pages: list[RecordedCall] = field(default_factory=list)
    number: int = 0
    next_page: int = 0
    is_used: bool = False

    def __post_init__(self) -> None:
        """Begin as used if there is no iterator to ask for."""
        self.is_used = self.call is None

    @property
    def is_pushed(self) -> bool:
        """True if the records come by a subscription."""
        results = [each.result for each in self.pages if each.result]
        if self.call is not None and self.call.result:
            results.insert(0, self.call.result)
        return bool(results) and results[0].get("pushed", False)

    def next(self) -> RecordedCall | None:
        """Return the next call of GetRecords, or None if no other is recorded."""
        if self.next_page == len(self.pages):
            return None
        self.next_page += 1
        return self.pages[self.next_page - 1]


class ShardReads:
    """The chains of all shards."""

    def __init__(self, calls: Iterable[RecordedCall], window: float) -> None:
        """``window`` is how much earlier or later a replay asks for an iterator."""
        self._window = window
        self._chains: defaultdict[tuple[str, str], list[Chain]]
        self._chains = defaultdict(lambda: [Chain(None)])
        self._by_token: dict[str, Chain] = {}
        for call in calls:
            if call.name == "get_iterator":
                chains = self._of(call.arguments)
                chains.append(Chain(call, number=len(chains)))
            elif call.name == "get_records":
                self._of(call.arguments)[-1].pages.append(call)

    def _of(self, arguments: dict[str, Any]) -> list[Chain]:
        return self._chains[arguments["stream"], arguments["shard_id"]]

    def place(
        self, stream: str, shard_id: str, after: object, now: float
    ) -> tuple[str, Chain]:
        """Return an iterator, and the chain that it begins or continues.

        The recorded iterator that is next in time begins one; one that begins at the
        same position goes first.
        """
        chains = self._chains[stream, shard_id]
        wanted = msgspec.to_builtins(after)

        def distance(chain: Chain) -> tuple[bool, float]:
            assert chain.call is not None
            is_other = chain.call.arguments["after"] != wanted
            return is_other, abs(chain.call.begun - now)

        free = [chain for chain in chains[1:] if not chain.is_used]
        near = [chain for chain in free if distance(chain)[1] <= self._window]
        latest = max(chains, key=lambda chain: (chain.is_used, chain.number))
        chain = min(near, key=distance, default=latest)
        for each in chains[: chain.number + 1]:
            each.is_used = True
        token = f"{stream}:{shard_id}:{chain.number}"
        self._by_token[token] = chain
        return token, chain

    def chain(self, token: str) -> Chain:
        """Return the chain of an iterator."""
        return self._by_token[token]


def page_of(result: dict[str, Any], token: str) -> Page:
    """Return a page with as many records, of as many bytes, which are zeros."""
    return Page(
        _records(result),
        None if result.get("is_end") else token,
        result.get("millis_behind", 0),
        tuple(map(shard_of, result.get("children", ()))),
        result.get("wire_bytes", 0),
        result.get("is_cbor", False),
        result.get("is_unconfirmed", False),
    )


def _records(result: dict[str, Any]) -> list[Record]:
    count = result.get("records", 0)
    if not count:
        return []
    numbers = [position[0] for position in result["first_and_last"]]
    first, last = int(numbers[0]), int(numbers[-1])
    arrived = [at or 0.0 for at in result["arrived"]]
    size, rest = divmod(result.get("data_bytes", 0), count)
    data, steps = bytes(size), max(1, count - 1)
    records = [
        Record(
            str(first + (last - first) * index // steps),
            data,
            None,
            arrived[0] + (arrived[-1] - arrived[0]) * index / steps,
        )
        for index in range(count)
    ]
    records[0].sequence_number, records[-1].sequence_number = numbers[0], numbers[-1]
    records[-1].data = bytes(size + rest)
    return records


def shard_of(shown: list[Any]) -> Shard:
    """Return a shard of a listing or of a page."""
    shard_id, first, last, parents, end = shown
    return Shard(shard_id, int(first), int(last), tuple(parents), end)
