"""Test how a table's stream is polled: places, pages, and the ends of shards."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.aws.table_polling import EMPTY_PAGES_AT_TIP, RETENTION_HOURS
from kinesumer.core.child_search import PAGE_SECONDS
from kinesumer.errors import (
    ChildrenUnknownError,
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Start
from tests.support.toy_table import ARN, ToySource, ToyTable

NOON = Start(type="AT_TIMESTAMP", timestamp=1000.0)


async def read(table: ToyTable, iterator: str | None, limit: int = 1000) -> Page:
    assert iterator is not None
    while True:
        try:
            return await table.source.get_records(iterator, limit)
        except ChildrenUnknownError:
            await asyncio.sleep(PAGE_SECONDS)


async def begin(
    table: ToyTable, shard_id: str, after: Position | Start = Start.TRIM_HORIZON
) -> Page:
    return await read(table, await table.source.get_iterator(shard_id, after))


def numbers(page: Page) -> list[str]:
    return [record.sequence_number for record in page.records]


async def test_the_description_is_that_of_a_stream_that_keeps_a_day() -> None:
    table = ToyTable()
    info = await table.source.describe()
    assert (info.arn, info.status, info.created_at) == (ARN, "ACTIVE", 5.0)
    assert (info.retention_hours, info.now) == (RETENTION_HOURS, 1000.0)
    assert table.described == [{"Limit": 1}]
    table.status = "ENABLING"
    assert (await table.source.describe()).status == "CREATING"


async def test_a_table_that_has_another_stream_by_now_is_an_error() -> None:
    table = ToyTable()
    table.latest = f"{ARN}-2"
    await table.source.describe()
    table.disable()
    with pytest.raises(StreamRecreatedError, match=r"has the stream .*-2 since"):
        await table.source.describe()
    table.latest = None
    assert (await table.source.describe()).status == "DISABLED"


async def test_a_shard_is_read_page_by_page_to_its_end_and_names_its_children() -> None:
    table = ToyTable()
    shard = table.open()
    table.put(shard, 1500)
    children = table.roll_over(shard, 2)
    page = await begin(table, shard)
    assert len(page.records) == 1000
    page = await read(table, page.next_iterator)
    assert len(page.records) == 500
    assert page.next_iterator is None
    assert [child.shard_id for child in page.children] == children
    where = {"Type": "CHILD_SHARDS", "ShardId": shard}
    assert table.described == [{"ShardFilter": where}]


async def test_a_server_without_the_filter_of_children_is_asked_for_all_pages() -> None:
    table = ToyTable(page_shards=2)
    table.knows_filter = False
    shards = [table.open() for _ in range(5)]
    [child] = table.roll_over(shards[0])
    assert [c.shard_id for c in (await begin(table, shards[0])).children] == [child]
    assert len(table.described) == 3


async def test_many_shards_that_close_at_once_are_found_by_one_listing() -> None:
    table = ToyTable()
    shards = [table.open() for _ in range(40)]
    children = [table.roll_over(shard)[0] for shard in shards]
    pages = await asyncio.gather(*(begin(table, shard) for shard in shards))
    found = [page.children[0].shard_id for page in pages]
    assert found == children
    assert len(table.described) <= 2


async def test_an_end_whose_children_cannot_be_asked_for_yet_is_read_again() -> None:
    table = ToyTable()
    one, other = table.open(), table.open()
    table.put(other, 3)
    for shard in (one, other):
        table.roll_over(shard)
    table.throttles = 1
    iterator = await table.source.get_iterator(one, Start.TRIM_HORIZON)
    with pytest.raises(ChildrenUnknownError, match="couldn't be asked for yet"):
        await table.source.get_records(iterator, 1000)
    # Records before an end are delivered at once.
    page = await begin(table, other)
    assert len(page.records) == 3
    page = await read(table, page.next_iterator)
    assert (page.records, len(page.children)) == ([], 1)
    assert len((await read(table, iterator)).children) == 1


async def test_a_failed_call_does_not_block_the_next_one() -> None:
    table = ToyTable()
    shard = table.open()
    table.roll_over(shard)
    reading = asyncio.ensure_future(begin(table, shard))
    while not table.described:
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len((await begin(table, shard)).children) == 1


async def test_a_shard_without_iterator_and_children_has_not_ended() -> None:
    table = ToyTable()
    shard = table.open()
    [child] = table.roll_over(shard)
    table.hidden.add(child)
    page = await begin(table, shard)
    assert page.is_unconfirmed
    table.hidden.clear()
    page = await read(table, page.next_iterator)
    assert [each.shard_id for each in page.children] == [child]


async def test_records_before_an_end_without_children_are_not_read_twice() -> None:
    table = ToyTable()
    shard = table.open()
    table.put(shard, 3)
    [child] = table.roll_over(shard)
    table.hidden.add(child)
    page = await begin(table, shard)
    assert len(page.records) == 3
    assert not page.is_unconfirmed
    page = await read(table, page.next_iterator)
    assert (page.records, page.is_unconfirmed) == ([], True)
    table.hidden.clear()
    page = await read(table, page.next_iterator)
    assert (page.records, page.next_iterator) == ([], None)
    assert len(page.children) == 1


async def test_a_shard_of_a_disabled_stream_ends_without_children() -> None:
    table = ToyTable()
    one, other = table.open(), table.open()
    table.put(one, 2)
    table.disable()
    for shard, count in ((one, 2), (other, 0)):
        page = await begin(table, shard)
        assert (len(page.records), page.next_iterator) == (count, None)
        assert (page.children, page.is_unconfirmed) == ((), False)


async def test_the_tip_is_where_a_new_record_was_read_or_several_pages_are_empty() -> (
    None
):
    table = ToyTable()
    shard = table.open()
    page = await begin(table, shard)
    behind = [page.millis_behind]
    for _ in range(EMPTY_PAGES_AT_TIP):
        page = await read(table, page.next_iterator)
        behind.append(page.millis_behind)
    assert behind == [1] * (EMPTY_PAGES_AT_TIP - 1) + [0, 0]
    table.put(shard)
    table.now += 60
    page = await read(table, page.next_iterator)
    assert page.millis_behind == 59_000
    page = await read(table, page.next_iterator)
    assert page.millis_behind == 1
    table.put(shard)
    page = await read(table, page.next_iterator)
    assert page.millis_behind == 0
    assert (await read(table, page.next_iterator)).millis_behind == 0


@pytest.mark.parametrize("has_times", [True, False])
async def test_a_start_at_a_time_skips_what_was_created_before(
    has_times: bool,
) -> None:
    table = ToyTable(has_times=has_times)
    shard = table.open()
    table.now = 900.0
    table.put(shard, 2)
    table.now = 1000.0
    table.put(shard, 3)
    page = await begin(table, shard, NOON)
    assert len(page.records) == 3
    table.now = 950.0  # a record that is out of order
    table.put(shard)
    await read(table, page.next_iterator)
    await begin(table, shard, NOON)
    horizon = Start.TRIM_HORIZON
    asked = [NOON, NOON] if has_times else [NOON, horizon, horizon]
    assert table.placed == asked


async def test_after_as_many_records_as_were_asked_for_more_may_follow() -> None:
    table = ToyTable()
    shard = table.open()
    table.put(shard, 2)
    iterator = await table.source.get_iterator(shard, Start.TRIM_HORIZON)
    page = await read(table, iterator, limit=1)
    assert (len(page.records), page.is_at_tip) == (1, False)
    page = await read(table, page.next_iterator, limit=2)
    assert (len(page.records), page.is_at_tip) == (1, True)


async def test_records_that_are_left_out_do_not_move_the_tip() -> None:
    table = ToyTable()
    shard = table.open()
    table.put(shard, 3)
    source = ToySource(table, skips=lambda _: True)
    page = await source.get_records(
        await source.get_iterator(shard, Start.TRIM_HORIZON), 10
    )
    assert (page.records, page.millis_behind) == ([], 0)


async def test_a_position_is_where_reading_continues() -> None:
    table = ToyTable()
    shard = table.open()
    table.put(shard, 3)
    first, *rest = numbers(await begin(table, shard))
    assert numbers(await begin(table, shard, Position(first))) == rest
    assert numbers(await begin(table, shard, Start.LATEST)) == []
    with pytest.raises(InvalidPositionError):
        await table.source.get_iterator(shard, Position("5"))


async def test_a_position_that_has_expired_is_past_the_end_only_of_a_closed_shard() -> (
    None
):
    table = ToyTable()
    shard = table.open()
    table.put(shard, 3)
    first, _, last = numbers(await begin(table, shard))
    table.shard(shard).trimmed = 3
    for position in (first, last):
        with pytest.raises(TrimmedPositionError):
            await table.source.get_iterator(shard, Position(position))
    table.roll_over(shard)
    with pytest.raises(TrimmedPositionError):
        await table.source.get_iterator(shard, Position(first))
    table.shard(shard).end = last
    assert (await begin(table, shard, Position(last))).children


async def test_a_shard_that_has_expired_is_missing_and_one_that_is_listed_is_not() -> (
    None
):
    table = ToyTable(page_shards=2)
    shards = [table.open() for _ in range(5)]
    iterator = await table.source.get_iterator(shards[0], Start.TRIM_HORIZON)
    await table.source.list_shards()
    del table.shards[0]
    with pytest.raises(ShardMissingError):
        await table.source.get_records(iterator, 10)
    with pytest.raises(ShardMissingError):
        await table.source.get_iterator(shards[0], Start.TRIM_HORIZON)
    for shard in shards[1:]:
        assert (await table.source.get_iterator(shard, Start.TRIM_HORIZON)) != iterator


async def test_a_listed_shard_that_is_not_found_is_asked_for_again() -> None:
    table = ToyTable()
    shard = table.open()
    iterator = await table.source.get_iterator(shard, Start.TRIM_HORIZON)

    class Forgetful(ToySource):
        """Finds no shard."""

        async def _read(self, *_: object) -> Page:
            raise ShardMissingError("no shard")

        async def _place(self, *_: object) -> str:
            raise ShardMissingError("no shard")

    forgetful = Forgetful(table)
    with pytest.raises(SourceUnavailableError, match="lists"):
        await forgetful.get_records(iterator, 10)
    with pytest.raises(SourceUnavailableError, match="lists"):
        await forgetful.get_iterator(shard, Start.TRIM_HORIZON)
