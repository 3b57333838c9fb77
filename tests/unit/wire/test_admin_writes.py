"""What operators' writes leave in the rows."""

from __future__ import annotations

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes, rows, writes
from tests.unit.wire.write_cases import (
    APP,
    ARN,
    GROUP_ROW,
    MEMBER_ROW,
    MINE,
    SHARD,
    SHARD_ROW,
    STREAM,
    STREAM_ROW,
    write_over,
)

STREAM_KEY = rows.stream_key(APP, ARN)


def test_a_notice_counts_on() -> None:
    row = write_over(MEMBER_ROW, admin_writes.notify(APP, MINE)).row
    assert row is not None
    assert rows.read_member(row).notice == 1


def test_a_drained_member_says_so_until_it_is_undone() -> None:
    row = write_over(MEMBER_ROW, admin_writes.drain(APP, MINE, drained=True)).row
    assert row is not None
    assert rows.read_member(row).drained
    row = write_over(row, admin_writes.drain(APP, MINE, drained=False)).row
    assert row == MEMBER_ROW


@pytest.mark.parametrize("reason", ["a deploy", ""])
def test_a_pause_stands_with_its_reason_until_it_is_resumed(reason: str) -> None:
    before = STREAM_ROW | {"pause_reason": "another one"}
    row = write_over(before, admin_writes.pause(STREAM_KEY, reason)).row
    assert row is not None
    stream = rows.read_stream(row)
    assert (stream.paused, stream.pause_reason) == (True, reason)
    assert write_over(row, admin_writes.resume(STREAM_KEY)).row == STREAM_ROW


def test_a_shard_and_a_group_tell_that_they_are_paused() -> None:
    pause = admin_writes.pause(rows.shard_key(APP, SHARD.key, 0), "bad records")
    row = write_over(SHARD_ROW, pause).row
    assert row is not None
    assert rows.read_shard(row)[-2:] == (True, "bad records")
    row = write_over(GROUP_ROW, admin_writes.pause(rows.group_key(APP), "")).row
    assert row is not None
    assert rows.read_group(row) == ("g", True, "", False)


def test_a_group_tells_that_it_is_being_reset_until_that_is_given_up() -> None:
    row = write_over(GROUP_ROW, admin_writes.begin_reset(APP)).row
    assert row is not None
    assert rows.read_group(row).resetting
    assert write_over(row, admin_writes.give_up_reset(APP)).row == GROUP_ROW


def test_a_deleted_row_is_gone() -> None:
    write = admin_writes.delete(rows.group_key(APP))
    assert write_over(GROUP_ROW, write).row is None


def test_a_seek_to_a_time_keeps_the_owner_and_leaves_the_epoch_to_nobody() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=5.5)
    before = SHARD_ROW | {"sub_sequence_number": 3}
    row = write_over(before, admin_writes.seek(APP, SHARD, at, waits=False)).row
    assert row is not None
    shard = rows.read_shard(row)
    assert (shard.owner, shard.owner_id, shard.claim) == ("mine", "c1", "")
    assert (shard.epoch, shard.start, shard.position) == (7, at, None)
    assert shard.ready


@pytest.mark.parametrize("to", [Position("400"), Position("400", 2)])
def test_a_seek_to_a_position_goes_back_too(to: Position) -> None:
    before = SHARD_ROW | {"sub_sequence_number": 3}
    row = write_over(before, admin_writes.seek(APP, SHARD, to, waits=False)).row
    assert row is not None
    assert rows.read_shard(row).position == to


def test_a_seek_opens_what_has_ended_and_lets_it_wait_for_its_parents() -> None:
    ended = SHARD._replace(ended=True)
    seek = admin_writes.seek(APP, ended, Start.TRIM_HORIZON, waits=True)
    row = write_over(SHARD_ROW | {"ended": True}, seek).row
    assert row is not None
    shard = rows.read_shard(row)
    assert (shard.ended, shard.ready) == (False, False)


def test_a_withdrawn_baseline_can_be_laid_again() -> None:
    row = write_over(STREAM_ROW, writes.baseline(APP, STREAM)).row
    assert row is not None and rows.read_stream(row).baseline
    row = write_over(row, admin_writes.withdraw(APP, STREAM)).row
    assert row is not None and not rows.read_stream(row).baseline
    anew = STREAM._replace(created_at=1.0)
    assert not write_over(row, admin_writes.withdraw(APP, anew)).applied


@pytest.mark.parametrize("paused", [True, False])
def test_a_row_is_replaced_whole_and_stays_paused(paused: bool) -> None:
    reason = "a deploy" if paused else ""
    before = SHARD._replace(paused=paused, pause_reason=reason)
    stored = SHARD_ROW | ({"paused": True, "pause_reason": reason} if paused else {})
    new = SHARD._replace(position=Position("4"), owner="", owner_id="", ready=True)
    row = write_over(stored, admin_writes.replace(APP, new, before)).row
    assert row is not None
    expected = new._replace(epoch=7, paused=paused, pause_reason=reason)
    assert rows.read_shard(row) == expected
    assert not write_over(row, admin_writes.replace(APP, new, before)).applied
