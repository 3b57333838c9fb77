"""Test the picture of ``status --watch`` with and without colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesumer.model.rows import LeaderRow, MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey, Start
from kinesumer.ops.cli.terminal_view.band import ASCII, LETTERS, Glyphs, colour
from kinesumer.ops.cli.terminal_view.drawing import Frame, draw
from kinesumer.ops.dashboard.model import Event, History, Line
from kinesumer.ops.dashboard.view_model import HUES, PATTERNS, DashboardInfo, ViewInput
from kinesumer.ops.dashboard.view_model import build_state as page
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.observation import observe
from kinesumer.ops.group.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.ops.dashboard.model import State

NOW = 1_800_000_000.0
WIDE = Frame(80, None, ASCII)
SIXTEENTH = HASH_KEYS // 16


def arn(name: str = "orders") -> str:
    return f"arn:aws:kinesis:us-east-1:000000000000:stream/{name}"


def shard(number: int, first: int, last: int, owner: str = "", **more: Any) -> ShardRow:
    """Return a shard's row. Its hash keys are the sixteenths ``first`` to ``last``."""
    stream = more.pop("stream", "orders")
    fields: dict[str, Any] = {"ready": True, **more}
    return ShardRow(
        ShardKey(arn(stream), f"shardId-{number:012}"),
        first * SIXTEENTH,
        (last + 1) * SIXTEENTH - 1,
        Start.TRIM_HORIZON,
        owner=owner and f"session of {owner}",
        owner_id=owner,
        **fields,
    )


def member(name: str, first: int, last: int, **more: Any) -> MemberRow:
    part = Interval(arn(), first * SIXTEENTH, (last + 1) * SIXTEENTH - 1)
    fields: dict[str, Any] = {"index": 0, "range": (part,), **more}
    return MemberRow(name, f"session of {name}", **fields)


def seen(
    members: Sequence[MemberRow],
    shards: Sequence[ShardRow],
    behind: Sequence[int] = (),
    **more: Any,
) -> State:
    """Return the page's state for a fleet in which the first member is the leader."""
    pages: dict[str, list[ShardRow]] = {}
    for row in shards:
        pages.setdefault(row.key.stream_arn, []).append(row)
    found = Snapshot(
        list(members),
        LeaderRow(members[0].session, members[0].client_id, 1) if members else None,
        [StreamRow(name, 1.0, Start.TRIM_HORIZON, baseline=True) for name in pages],
        pages,
    )
    lags = Lags(dict(zip((row.key for row in shards), behind, strict=False)), {})
    slots = {row.client_id: slot for slot, row in enumerate(members)}
    fields: dict[str, Any] = {"slots": slots, **more}
    look = ViewInput(observe(None, found, lags, 0.0), NOW, 2.0, **fields)
    return page(DashboardInfo("billing", "kinesumer-state-store"), look)


def picture(state: State, frame: Frame = WIDE) -> str:
    """Return the picture as text, cut at the frame's width."""
    lines = [line.plain[: frame.width].rstrip() for line in draw(state, frame)]
    return "\n".join(lines)


TWO = [member("left", 0, 7), member("right", 8, 15, index=1)]
CALM = seen(
    TWO,
    [shard(0, 0, 7, "left"), shard(1, 8, 11, "right"), shard(2, 12, 15, "right")],
    [0, 1500, 45_000],
)


def test_a_healthy_fleet_in_letters() -> None:
    assert picture(CALM) == (
        """\
billing  45.0 s behind · 3 of 3 shards consumed · 2 clients · 08:00:00 UTC · tab
  client  index  heartbeat  shards     behind  load  state
a left        0      0.0 s       1  caught up     -  leader, up
b right       1      0.0 s       2     45.0 s     -  up
orders (000000000000, us-east-1)  45.0 s behind · 3 shards: 3 owned
     lag 11111111111111111111111111111111111111111111111111111444444444444444444
  shards |aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa|bbbbbbbbbbbbbbbb|bbbbbbbbbbbbbbbbb
    plan |a left                             |b right
1 <1s  2 <5s  3 <30s  4 <2m  5 <10m  6 <1h  7 <6h  8 more"""
    )


def test_a_client_has_its_load_relative_to_its_share() -> None:
    members = [replace(one, load_share=1.234) for one in CALM.members]
    lines = picture(replace(CALM, members=members)).splitlines()
    assert lines[2] == "a left        0      0.0 s       1  caught up  1.23  leader, up"


def test_children_are_below_their_parent_until_it_has_ended() -> None:
    parent = shard(0, 0, 15, "left")
    children = [
        shard(1, 0, 7, ready=False, parents=frozenset({parent.key.shard_id})),
        shard(2, 8, 15, ready=False, parents=frozenset({parent.key.shard_id})),
    ]
    assert bands(seen([member("left", 0, 15)], [parent, *children]), 41) == (
        """\
  shards |aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
children |---------------|---------------
    plan |a left"""
    )


def test_unconsumed_and_moving_shards_are_marked() -> None:
    rows = [
        shard(0, 0, 3, "left"),
        shard(1, 4, 7, "right"),
        shard(2, 8, 11),
        shard(3, 12, 15, "gone"),
    ]
    found = seen(TWO, rows)
    assert bands(found, 41) == (
        """\
  shards |aaaaaaa|b>abbbb|???????|!!!!!!!
    plan |a left         |b right"""
    )
    assert (
        picture(found)
        .splitlines()[-1]
        .startswith("! orphaned  ? unowned  > moving  1 <1s")
    )


def test_a_pause_is_drawn_with_its_reason() -> None:
    rows = [shard(0, 0, 7, "left"), shard(1, 8, 15, paused=True, pause_reason="x")]
    found = seen(TWO, rows)
    assert "2 shards consumed · 1 paused" in picture(found)
    assert "2 shards: 1 owned, 1 paused" in picture(found)
    assert bands(found, 41) == (
        """\
  shards |aaaaaaaaaaaaaaa|===============
    plan |a left         |b right"""
    )
    everything = replace(found, paused=True, pause_reason="bad deploy")
    assert "· paused: bad deploy ·" in picture(everything)


def bands(found: State, width: int) -> str:
    """Return the lines of the picture that show the shards, children and plan."""
    lines = picture(found, Frame(width, None, ASCII)).splitlines()
    return "\n".join(
        line
        for line in lines
        if line.split()[:1] in (["shards"], ["children"], ["plan"])
    )


def crowd(shards: int, clients: int, *, unowned: int = -1) -> State:
    """Return the state of a fleet whose clients all have the same number of shards."""
    step, members, rows = HASH_KEYS // shards, [], []
    for number in range(shards):
        owner = f"c{number * clients // shards:02}" * (number != unowned)
        range_ = (number * step, (number + 1) * step - 1)
        row = shard(number, 0, 15, owner)
        rows.append(row._replace(first_hash=range_[0], last_hash=range_[1]))
    for n in range(clients):
        name, part = f"c{n:02}", [r for r in rows if r.owner_id == f"c{n:02}"]
        planned = Interval(arn(), part[0].first_hash, part[-1].last_hash)
        members.append(member(name, 0, 15, index=n, range=(planned,)))
    return seen(members, rows, [number % 2 * 7_000 for number in range(shards)])


def test_few_shards_have_edges_and_many_share_columns() -> None:
    assert bands(crowd(5, 2), 40) == (
        """\
  shards |aaaaa|aaaaa|aaaaaa|bbbbb|bbbbb
    plan |a c00             |b c01"""
    )
    assert bands(crowd(1000, 4), 40) == (
        """\
  shards aaaaaaaabbbbbbbbccccccccddddddd
    plan |a c00  |b c01  |c c02 |d c03"""
    )


def test_the_slowest_shard_of_a_column_sets_its_height() -> None:
    lag = next(line for line in picture(crowd(1000, 4)).splitlines() if " lag " in line)
    assert lag.split() == ["lag", "3" * 71]


def test_one_unowned_shard_among_a_thousand_is_visible() -> None:
    (line, _) = bands(crowd(1000, 1, unowned=500), 80).splitlines()
    assert line.count("?") == 1


def test_members_have_their_role_and_label() -> None:
    members = [
        member("left", 0, 7, label="us-east-1a"),
        member("right", 8, 15, range=None, index=None, state="leaving"),
        member("query", 8, 15, kind="query"),
    ]
    lines = picture(seen(members, [shard(0, 0, 15, "left")])).splitlines()
    states = {line.split()[1]: line.split("  ")[-1] for line in lines[2:5]}
    assert states == {
        "left": "leader, up, in us-east-1a",
        "right": "leaving, joining",
        "query": "Spark query, up",
    }


def test_members_in_trouble_come_first() -> None:
    found = crowd(64, 40)
    members = list(found.members)
    members[30] = replace(members[30], states=["silent"])
    found = replace(found, members=members)
    lines = picture(found, Frame(80, 24, ASCII)).splitlines()
    assert [line.split()[1] for line in lines[2:8]] == [
        "c30",
        "c00",
        "c01",
        "c02",
        "c03",
        "c04",
    ]
    assert lines[8] == "  … and 34 more clients, all well"


@pytest.mark.parametrize("height", [6, 10, 16, 24, 60])
@pytest.mark.parametrize("streams", [1, 3, 12, 40])
def test_the_picture_fits_the_terminal(height: int, streams: int) -> None:
    names = [f"stream-{number:02}" for number in range(streams)]
    rows = [shard(0, 0, 15, "left", stream=name) for name in names]
    found = seen(TWO, rows)
    drawn = draw(found, Frame(80, height, Glyphs()))
    assert len(drawn) <= height
    assert all("\n" not in line.plain for line in drawn)


def test_streams_that_dont_fit_are_counted() -> None:
    rows = [shard(0, 0, 15, "left", stream=f"s{number}") for number in range(40)]
    text = picture(seen(TWO, rows), Frame(80, 16, ASCII))
    assert "… and 30 more streams: a taller terminal shows them" in text


def test_a_small_terminal_gives_one_line_per_stream() -> None:
    rows = [shard(0, 0, 15, "left", stream=f"s{number}") for number in range(4)]
    text = picture(seen(TWO, rows), Frame(40, 12, ASCII))
    assert "      s0 |aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" in text
    assert "plan" not in text


def test_the_last_hour_is_below_a_stream() -> None:
    times = [int(NOW) - 60 * ago for ago in (59, 30, 1, 0)]
    history = History(
        times=times,
        millis_behind=[
            Line(
                stream_arn=arn(),
                name="orders",
                slot=0,
                values=[None, 8000.0, 0.0, 1000.0],
            )
        ],
        records_per_second=[
            Line(
                stream_arn=arn(),
                name="orders",
                slot=0,
                values=[10.0, 20.0, None, 20.0],
            )
        ],
    )
    text = picture(seen(TWO, [shard(0, 0, 15, "left")], history=history))
    (hour,) = [line for line in text.splitlines() if " hour " in line]
    assert hour == (
        "    hour lag         8        2 to 8.0 s  records/s 5       8        8 to 20"
    )


def test_the_lag_of_a_stream_that_stayed_caught_up_is_said_in_words() -> None:
    lags = Line(stream_arn=arn(), name="orders", slot=0, values=[0.0])
    history = History(times=[int(NOW)], millis_behind=[lags], records_per_second=[])
    text = picture(seen(TWO, [shard(0, 0, 15, "left")], history=history))
    assert " 1 caught up" in text


def test_the_latest_events_are_on_top() -> None:
    events = [
        Event(kind="joined", text=f"c{number} joined", at=NOW + number, number=number)
        for number in range(30)
    ]
    lines = picture(seen(TWO, [shard(0, 0, 15, "left")], events=events)).splitlines()
    assert lines[-20:][0] == "08:00:29 c29 joined"
    assert lines[-1] == "08:00:10 c10 joined"


def test_problems_come_first() -> None:
    found = seen([], [shard(0, 0, 15)], trouble="the table doesn't answer")
    lines = picture(found).splitlines()
    assert lines[1] == "! the table doesn't answer"
    assert lines[2].startswith("! stream orders: shardId-000000000000 is unowned")
    assert lines[3] == "no client is alive"


def test_control_characters_in_names_are_escaped() -> None:
    evil = "\x1b[2J\x1b[H evil\n"
    found = seen(
        [member(evil, 0, 15)],
        [shard(0, 0, 15, evil)],
        events=[Event(kind="joined", text=evil, at=NOW, number=1)],
    )
    text = picture(found)
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def test_every_slot_has_its_own_letter_and_colour() -> None:
    slots = HUES * PATTERNS
    assert len({colour(slot) for slot in range(slots)}) == len(LETTERS) == slots


def test_wide_characters_keep_the_columns_aligned() -> None:
    members = [member("店舗", 0, 7), member("right", 8, 15)]
    found = seen(members, [shard(0, 0, 15, "right")])
    plan = next(line for line in draw(found, WIDE) if "plan" in line.plain)
    assert plan.cell_len == 80
