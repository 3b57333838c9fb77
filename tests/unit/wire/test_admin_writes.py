"""Test the rows that result from operators' writes."""

from __future__ import annotations

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.wire import admin_writes, rows, writes
from tests.support.write_cases import (
    APP,
    ARN,
    GROUP_ROW,
    MEMBER_ROW,
    MINE,
    SHARD,
    SHARD_ROW,
    STREAM,
    STREAM_ROW,
    row_after,
    write_over,
)

STREAM_KEY = rows.stream_key(APP, ARN)


def test_a_notice_counts_on() -> None:
    row = row_after(MEMBER_ROW, admin_writes.notify(APP, MINE))
    assert rows.read_member(row).notice == 1


def test_a_member_is_drained_until_the_drain_is_ended() -> None:
    row = row_after(MEMBER_ROW, admin_writes.drain(APP, MINE, drained=True))
    assert rows.read_member(row).drained
    row = row_after(row, admin_writes.drain(APP, MINE, drained=False))
    assert row == MEMBER_ROW


@pytest.mark.parametrize("reason", ["a deploy", ""])
def test_a_pause_has_its_reason_until_it_is_ended(reason: str) -> None:
    before = STREAM_ROW | {"pause_reason": "another one"}
    row = row_after(before, admin_writes.pause(STREAM_KEY, reason))
    stream = rows.read_stream(row)
    assert (stream.paused, stream.pause_reason) == (True, reason)
    assert write_over(row, admin_writes.resume(STREAM_KEY)).row == STREAM_ROW


def test_a_shard_and_a_group_may_be_paused() -> None:
    pause = admin_writes.pause(rows.shard_key(APP, SHARD.key, 0), "bad records")
    row = row_after(SHARD_ROW, pause)
    assert rows.read_shard(row)[-2:] == (True, "bad records")
    row = row_after(GROUP_ROW, admin_writes.pause(rows.group_key(APP), ""))
    assert rows.read_group(row) == ("g", True, "", False)


def test_a_group_is_being_reset_until_the_reset_is_given_up() -> None:
    row = row_after(GROUP_ROW, admin_writes.begin_reset(APP))
    assert rows.read_group(row).resetting
    assert write_over(row, admin_writes.give_up_reset(APP)).row == GROUP_ROW


def test_a_seek_to_a_time_keeps_the_owner_and_raises_the_epoch() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=5.5)
    before = SHARD_ROW | {"sub_sequence_number": 3}
    row = row_after(before, admin_writes.seek(APP, SHARD, at, waits=False))
    shard = rows.read_shard(row)
    assert (shard.owner, shard.owner_id, shard.claim) == ("mine", "c1", "")
    assert (shard.epoch, shard.start, shard.position) == (7, at, None)
    assert shard.ready


@pytest.mark.parametrize("to", [Position("400"), Position("400", 2)])
def test_a_seek_to_a_position_may_go_back(to: Position) -> None:
    before = SHARD_ROW | {"sub_sequence_number": 3}
    row = row_after(before, admin_writes.seek(APP, SHARD, to, waits=False))
    assert rows.read_shard(row).position == to


def test_a_seek_reopens_an_ended_shard_which_waits_for_its_parents() -> None:
    ended = SHARD._replace(ended=True)
    seek = admin_writes.seek(APP, ended, Start.TRIM_HORIZON, waits=True)
    row = row_after(SHARD_ROW | {"ended": True}, seek)
    shard = rows.read_shard(row)
    assert (shard.ended, shard.ready) == (False, False)


def test_a_baseline_is_withdrawn_unless_the_stream_was_recreated() -> None:
    row = row_after(STREAM_ROW, writes.baseline(APP, STREAM))
    row = row_after(row, admin_writes.withdraw(APP, STREAM))
    assert not rows.read_stream(row).baseline
    recreated = STREAM._replace(created_at=1.0)
    assert not write_over(row, admin_writes.withdraw(APP, recreated)).applied


@pytest.mark.parametrize("paused", [True, False])
def test_a_row_is_replaced_whole_and_stays_paused(paused: bool) -> None:
    reason = "a deploy" if paused else ""
    before = SHARD._replace(paused=paused, pause_reason=reason)
    stored = SHARD_ROW | ({"paused": True, "pause_reason": reason} if paused else {})
    new = SHARD._replace(position=Position("4"), owner="", owner_id="", ready=True)
    row = row_after(stored, admin_writes.replace(APP, new, before))
    expected = new._replace(epoch=7, paused=paused, pause_reason=reason)
    assert rows.read_shard(row) == expected
    assert not write_over(row, admin_writes.replace(APP, new, before)).applied
