"""Test that a shard ends once and rightly, whether it is polled or pushed."""

from __future__ import annotations

import pytest

from kinesumer.core.lineage import find
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.ports import StreamSource
from kinesumer.testing.embedded_aws.faults import Kind
from tests.support.subscriptions import FIRST_SHARD, FanOutAws, Reader

FAULTS: dict[str, Kind] = {"polled": "no_iterator", "pushed": "no_continuation"}
both = pytest.mark.parametrize("how", FAULTS)


async def source(served: FanOutAws, how: str) -> StreamSource:
    return await (served.polling() if how == "polled" else served.source())


async def ending_number(served: FanOutAws) -> str:
    shard = find(await (await served.polling()).list_shards(), FIRST_SHARD)
    assert shard is not None
    assert shard.ending_sequence_number is not None
    return shard.ending_sequence_number


@both
async def test_answers_without_an_iterator_do_not_end_an_open_shard(
    served: FanOutAws, how: str
) -> None:
    reader = Reader(await source(served, how))
    texts = [str(number) for number in range(20)]
    served.aws.fault(FAULTS[how], count=15)
    for count, text in enumerate(texts, start=1):
        served.put(text)
        assert await reader.until(count) == texts[:count]
    served.aws.split("orders", FIRST_SHARD)
    children = await reader.end()
    assert [child.parents for child in children] == [(FIRST_SHARD,)] * 2


@both
async def test_an_answer_that_only_looks_like_the_end_is_marked(
    served: FanOutAws, how: str
) -> None:
    opened = await source(served, how)
    served.aws.fault(FAULTS[how], count=1)
    iterator = await opened.get_iterator(FIRST_SHARD, Start.TRIM_HORIZON)
    page = await opened.get_records(iterator, 10)
    assert page.is_unconfirmed
    assert page.next_iterator is not None


@both
async def test_a_closed_shard_whose_children_are_never_named_ends(
    served: FanOutAws, how: str
) -> None:
    served.put("a", "b")
    served.aws.split("orders", FIRST_SHARD)
    for fault in FAULTS.values():
        served.aws.fault(fault)
    reader = Reader(await source(served, how))
    assert list(await reader.end()) == []
    assert reader.texts == ["a", "b"]


@both
async def test_the_ending_number_of_a_closed_shard_is_its_end(
    served: FanOutAws, how: str
) -> None:
    served.put("a", "b")
    served.aws.split("orders", FIRST_SHARD)
    after = Position(await ending_number(served))
    reader = Reader(await source(served, how), after=after)
    assert len(await reader.end()) == 2
    assert not reader.texts
    assert not reader.errors
