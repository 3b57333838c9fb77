"""A session's life: registration, beats and their deadline, death, and the next one."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kinesumer.coordination.events import Failed, SessionLost, SessionRenewed
from kinesumer.errors import ClientIdInUseError, StateStoreMissingError
from kinesumer.wire import admin_writes, rows, writes
from tests.support.heartbeat import Body
from tests.support.world import APP, ARN, World, in_virtual_time

H = 2.0
TRUSTED = 6.0


@in_virtual_time
async def test_a_new_client_registers_and_beats_every_h(world: World) -> None:
    body = Body(world)
    row = await body.registered()
    assert (row.incarnation, row.beat, row.state) == (0, 0, "up")
    assert row.streams == {ARN}
    assert row.last_update == rows.timestamp_text(world.clock.wall() - 0.009)
    await asyncio.sleep(30)
    numbers, times = zip(*body.beats(), strict=True)
    assert numbers == tuple(range(len(numbers)))
    gaps = [after - before for before, after in pairwise(times[2:])]
    assert gaps == pytest.approx([H] * len(gaps), abs=0.01)


@in_virtual_time
async def test_who_has_no_plan_yet_asks_more_often(world: World) -> None:
    body = Body(world)
    await asyncio.sleep(2)
    assert body.row.beat == pytest.approx(8, abs=1)


@in_virtual_time
async def test_the_deadline_counts_from_when_the_beat_was_sent(world: World) -> None:
    body = Body(world)
    await body.registered()
    await asyncio.sleep(20)
    _, acknowledged = body.beats()[-1]
    assert body.lease.deadline == pytest.approx(acknowledged + TRUSTED, abs=0.01)


@in_virtual_time
async def test_the_deadline_counts_from_the_first_try_not_from_the_retry(
    world: World,
) -> None:
    body = Body(world)
    await body.registered()
    await asyncio.sleep(10)
    body.store.spoil("lost", "beat")
    body.store.spoil("lost", "beat")
    sent = len(body.store.sent)
    await world.until(lambda: len(body.store.sent) > sent)
    first_sent = world.clock.now()
    beat = body.store.sent[-1].set["beat"]
    await world.until(lambda: body.row.beat == beat)
    assert [w.set["beat"] for w in body.store.sent[sent:]] == [beat] * 3
    assert world.clock.now() > first_sent + 0.5
    assert body.lease.deadline == pytest.approx(first_sent + TRUSTED, abs=0.02)


@in_virtual_time
async def test_a_beat_whose_answer_is_lost_is_repeated_and_accepted(
    world: World,
) -> None:
    body = Body(world)
    await body.registered()
    body.store.spoil("unanswered", "beat")
    await asyncio.sleep(20)
    assert not body.events_of(SessionLost)
    assert body.lease.permits(world.clock.now())


@in_virtual_time
async def test_a_beat_that_is_never_answered_is_given_up_after_h(
    world: World,
) -> None:
    body = Body(world)
    await body.registered()
    await asyncio.sleep(10)
    body.store.latency = 3600
    await asyncio.sleep(8)
    assert not body.lease.permits(world.clock.now())
    body.store.latency = 0.001
    await asyncio.sleep(3)
    assert body.lease.permits(world.clock.now())
    assert not body.events_of(SessionLost)


@in_virtual_time
async def test_a_throttled_beat_tells_so_until_it_is_accepted(world: World) -> None:
    body = Body(world)
    await body.registered()
    assert not body.heartbeater.is_throttled
    body.store.spoil("throttled", "beat")
    await world.until(lambda: body.heartbeater.is_throttled)
    refused = world.clock.now()
    await world.until(lambda: not body.heartbeater.is_throttled)
    assert world.clock.now() - refused < 1.0
    assert body.lease.permits(world.clock.now())


@in_virtual_time
async def test_an_outage_ends_the_lease_but_not_the_session(world: World) -> None:
    body = Body(world)
    row = await body.registered()
    body.store.down = True
    await asyncio.sleep(60)
    assert not body.lease.permits(world.clock.now())
    assert not body.lease.dead
    body.store.down = False
    await asyncio.sleep(1)
    assert body.lease.permits(world.clock.now())
    assert body.row.session == row.session


@in_virtual_time
async def test_a_lost_answer_to_the_registration_is_found_out(world: World) -> None:
    sent = world.clock.now()
    body = Body(world)
    body.store.spoil("unanswered", "session")
    await body.registered()
    assert body.row.incarnation == 0
    first = body.events_of(SessionRenewed)[0]
    assert first.row.session == body.row.session
    assert body.lease.deadline == pytest.approx(sent + TRUSTED, abs=0.3)


@in_virtual_time
async def test_a_registration_fenced_before_its_answer_came_is_made_anew(
    world: World,
) -> None:
    body = Body(world)
    body.store.spoil("unanswered", "session")
    await world.until(lambda: world.members())
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.events_of(SessionRenewed))
    assert (body.row.incarnation, body.row.dead) == (1, False)
    assert body.lease.session == body.row.session


@in_virtual_time
async def test_who_is_told_dead_registers_anew_with_another_session(
    world: World,
) -> None:
    body = Body(world)
    row = await body.registered()
    lease = body.lease
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.events_of(SessionLost))
    assert lease.dead
    assert not lease.permits(-1e9)
    await world.until(lambda: body.row.session != row.session)
    assert (body.row.incarnation, body.row.dead) == (1, False)
    assert body.lease is not lease


@in_virtual_time
async def test_the_next_registration_asks_for_the_streams_set_meanwhile(
    world: World,
) -> None:
    body = Body(world)
    row = await body.registered()
    body.heartbeater.set_streams(frozenset({"arn:other"}))
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.row.session != row.session)
    assert body.row.streams == {"arn:other"}


@pytest.mark.parametrize("drained", [True, False])
@in_virtual_time
async def test_a_drained_process_stays_so_in_its_next_session(
    world: World, *, drained: bool
) -> None:
    body = Body(world)
    row = await body.registered()
    await world.table.write(admin_writes.drain(APP, row, drained=drained))
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.row.session != row.session)
    assert body.row.drained is drained


@in_virtual_time
async def test_a_process_that_starts_again_is_not_drained(world: World) -> None:
    body = Body(world)
    row = await body.registered()
    await world.table.write(admin_writes.drain(APP, row, drained=True))
    await end(body)
    again = Body(world)
    assert not (await again.registered()).drained


@in_virtual_time
async def test_a_new_state_is_told_by_a_beat_at_once(world: World) -> None:
    body = Body(world)
    await body.registered()
    await asyncio.sleep(10)
    body.heartbeater.set_state("leaving")
    await asyncio.sleep(0.01)
    assert body.row.state == "leaving"
    beats = body.row.beat
    body.heartbeater.set_state("leaving")
    await asyncio.sleep(0.01)
    assert body.row.beat == beats


@in_virtual_time
async def test_who_leaves_stays_leaving_whatever_else_changes(world: World) -> None:
    body = Body(world)
    await body.registered()
    for state in ("leaving", "degraded", "up"):
        body.heartbeater.set_state(state)
        await asyncio.sleep(1)
        assert body.row.state == "leaving"


@in_virtual_time
async def test_the_date_is_written_rarely(world: World) -> None:
    body = Body(world)
    await body.registered()
    await asyncio.sleep(600)
    assert len(body.store.writes("last_update")) <= 6
    assert len(body.store.writes("beat")) > 290


@in_virtual_time
async def test_a_lost_table_is_fatal(world: World) -> None:
    body = Body(world)
    await body.registered()
    world.table.delete_table()
    await world.until(lambda: body.events_of(Failed))
    assert isinstance(body.events_of(Failed)[0].error, StateStoreMissingError)
    assert body.task.done()


# --- one id, two processes ---


async def end(body: Body) -> None:
    """SIGKILL."""
    body.task.cancel()
    await asyncio.wait([body.task])


@in_virtual_time
async def test_a_static_id_waits_for_its_dead_predecessor_and_takes_its_place(
    world: World,
) -> None:
    old = Body(world)
    row = await old.registered()
    await asyncio.sleep(10)
    await end(old)
    began = world.clock.now()
    new = Body(world)
    await world.until(lambda: new.events_of(SessionRenewed))
    assert 8 <= world.clock.now() - began < 9
    assert new.row.session != row.session
    assert (new.row.incarnation, new.row.dead) == (1, False)


@in_virtual_time
async def test_a_predecessor_that_left_is_not_waited_for(world: World) -> None:
    old = Body(world)
    await old.registered()
    await end(old)
    await world.table.write(writes.leave(APP, old.row, "now"))
    began = world.clock.now()
    new = Body(world)
    await world.until(lambda: new.events_of(SessionRenewed))
    assert world.clock.now() - began < 0.1


@in_virtual_time
async def test_a_predecessor_that_leaves_while_it_is_watched_frees_its_place(
    world: World,
) -> None:
    old = Body(world)
    await old.registered()
    old.heartbeater.set_state("leaving")
    new = Body(world)
    await asyncio.sleep(5)
    await end(old)
    await world.table.write(writes.leave(APP, old.row, "now"))
    await world.until(lambda: new.events_of(SessionRenewed), seconds=1)
    assert not new.events_of(Failed)


@in_virtual_time
async def test_two_live_processes_with_one_id_are_an_error_for_the_second(
    world: World,
) -> None:
    old = Body(world)
    await old.registered()
    await asyncio.sleep(10)
    new = Body(world)
    await world.until(lambda: new.events_of(Failed))
    error = new.events_of(Failed)[0].error
    assert isinstance(error, ClientIdInUseError)
    assert "'c1'" in str(error)
    assert "'app'" in str(error)
    assert not old.events_of(SessionLost)


@in_virtual_time
async def test_an_outage_does_not_cost_a_live_process_its_id(world: World) -> None:
    old = Body(world)
    await old.registered()
    await asyncio.sleep(10)
    new = Body(world)
    await asyncio.sleep(1)
    old.store.down = new.store.down = True
    await asyncio.sleep(60)
    new.store.down = False
    await asyncio.sleep(2)
    old.store.down = False
    await world.until(lambda: new.events_of(Failed))
    assert not old.events_of(SessionLost)


@in_virtual_time
async def test_one_late_beat_of_the_predecessor_is_no_sign_of_life(
    world: World,
) -> None:
    old = Body(world)
    await old.registered()
    await asyncio.sleep(10)
    await end(old)
    new = Body(world)
    await asyncio.sleep(5)
    late = writes.heartbeat(APP, old.row, old.row.beat + 1, state="up", lease_ms=8000)
    assert (await world.table.write(late)).applied
    began = world.clock.now()
    await world.until(lambda: new.events_of(SessionRenewed))
    assert 8 <= world.clock.now() - began < 9


# --- the watchdog ---


@in_virtual_time
async def test_user_code_without_progress_gives_its_shards_up(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    body = Body(world, max_processing_seconds=60)
    row = await body.registered()
    body.busy_since = world.clock.now()
    await asyncio.sleep(59)
    assert not body.events_of(SessionLost)
    await asyncio.sleep(5)
    assert len(body.events_of(SessionLost)) == 1
    assert body.row == row._replace(
        dead=True,
        beat=body.row.beat,
        last_update=body.row.last_update,
    )
    assert "no progress for max_processing_seconds=60 s" in caplog.text


@in_virtual_time
async def test_it_registers_anew_once_user_code_goes_on(world: World) -> None:
    body = Body(world, max_processing_seconds=60)
    row = await body.registered()
    body.busy_since = world.clock.now()
    await asyncio.sleep(300)
    assert body.row[:2] == row[:2]
    body.busy_since = world.clock.now()
    await asyncio.sleep(3)
    assert (body.row.incarnation, body.row.dead) == (1, False)
