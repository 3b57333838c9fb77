"""Test that no order of odd answers ends a shard early, or keeps it from ending."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.aws.polling import PollingSource
from kinesumer.core.lineage import is_past_end
from kinesumer.errors import InvalidPositionError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard, Start

OPEN = Shard("shardId-0", 0, HASH_KEYS - 1)
CHILD = Shard("shardId-1", 0, HASH_KEYS - 1, ("shardId-0",))
# What happens before an answer or a listing: records arrive, or the shard closes.
EVENTS = st.sampled_from(["nothing", "nothing", "record", "close"])
# Whether an answer has neither an iterator nor children, or has no records either.
ODD = st.sampled_from(["no", "no", "no iterator", "no children"])
STEPS = st.lists(st.tuples(EVENTS, ODD), max_size=40)


class OddServer(PollingSource):
    """A shard whose answers and changes follow a script, and are normal after it."""

    def __init__(self, script: list[tuple[str, str]]) -> None:
        self._script = script
        self.records: list[Record] = []
        self.shard = OPEN

    def _step(self) -> str:
        event, odd = self._script.pop(0) if self._script else ("close", "no children")
        if event == "close" and not self.shard.closed:
            ending = str(101 + len(self.records))
            self.shard = OPEN._replace(ending_sequence_number=ending)
        elif event == "record" and not self.shard.closed:
            self.records.append(Record(str(101 + len(self.records)), b"x"))
        return odd

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shard; it may have closed just before."""
        self._step()
        return [self.shard, *([CHILD] if self.shard.closed else [])]

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        if is_past_end(self.shard, after):
            raise InvalidPositionError("it has reached the maximum")
        if isinstance(after, Position):
            return str(int(after.sequence_number) - 100)
        return str(len(self.records) if after == Start.LATEST else 0)

    async def _answer(self, place: str) -> Page:
        odd = self._step()
        found = self.records[int(place) : int(place) + 2]
        following = int(place) + len(found)
        if self.shard.closed and following == len(self.records):
            children = () if odd == "no children" else (CHILD,)
            page = Page(found, None, 0, children)
        else:
            page = Page(found, str(following), 0)
        if odd == "no iterator":
            page = page._replace(next_iterator=None, children=())
        return page

    async def get_records(self, iterator: str) -> Page:
        return await self._read_confirmed(iterator, self._answer)


@given(STEPS)
def test_a_shard_ends_when_it_is_closed_and_all_its_records_were_read(
    script: list[tuple[str, str]],
) -> None:
    async def read() -> None:
        server = OddServer(script)
        iterator: str | None = await server.get_iterator(
            "shardId-0", Start.TRIM_HORIZON
        )
        found: list[Record] = []
        for _ in range(200):
            assert iterator is not None
            page = await server.get_records(iterator)
            found += page.records
            iterator = page.next_iterator
            if iterator is None:
                break
        assert iterator is None
        assert server.shard.closed
        assert found == server.records

    asyncio.run(read())


@given(STEPS, st.integers(0, 50))
def test_a_position_past_the_last_record_ends_a_closed_shard_only(
    script: list[tuple[str, str]], beyond: int
) -> None:
    async def read() -> None:
        server = OddServer(script)
        for _ in range(10):
            await server.list_shards()
        number = str(101 + len(server.records) + beyond)
        was_closed = server.shard.closed
        iterator = await server.get_iterator("shardId-0", Position(number))
        page = await server.get_records(iterator)
        assert page.next_iterator is not None or server.shard.closed
        while was_closed and page.next_iterator is not None:
            page = await server.get_records(page.next_iterator)
        assert not (was_closed and page.records)

    asyncio.run(read())
