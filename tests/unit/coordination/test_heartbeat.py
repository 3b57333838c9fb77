"""Test a session's registration, heartbeats, lease and death, also in large fleets."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import Failed, SessionLost, SessionRenewed
from kinesumer.core.liveness import CLIENTS_PER_SECOND, Lease
from kinesumer.errors import ClientIdInUseError, StateStoreMissingError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.streams import FanOutUse
from kinesumer.wire import admin_writes, rows, writes
from kinesumer.wire.reports import read_incidents
from tests.support.members import Body, Fleet, registered
from tests.support.world import APP, ARN, World

H = 2.0
TRUSTED = 6.0


async def test_a_new_client_registers_and_beats_every_h(world: World) -> None:
    body = await registered(world)
    row = body.row
    assert (row.incarnation, row.beat, row.state) == (0, 0, "up")
    assert row.streams == {ARN}
    assert row.last_update == rows.timestamp_text(world.clock.wall() - 0.009)
    await asyncio.sleep(30)
    numbers, times = zip(*body.beats(), strict=True)
    assert numbers == tuple(range(len(numbers)))
    gaps = [after - before for before, after in pairwise(times[2:])]
    assert gaps == pytest.approx([H] * len(gaps), abs=0.01)


async def test_heartbeats_are_frequent_before_the_first_plan(world: World) -> None:
    body = Body(world)
    await asyncio.sleep(2)
    assert body.row.beat == pytest.approx(8, abs=1)


async def test_a_client_registers_its_commit_interval(world: World) -> None:
    body = Body(world, commit_interval_seconds=0.5)
    assert (await body.registered()).commit_ms == 500


async def test_a_change_of_fan_out_is_written_with_the_next_heartbeat(
    world: World,
) -> None:
    body = await registered(world)
    await asyncio.sleep(10)
    sent = len(body.store.sent)
    for use in (FanOutUse("billing", "access denied"), FanOutUse("billing")):
        body.fan_out = {ARN: use}
        await asyncio.sleep(3 * H)
        assert body.row.fan_out == {ARN: use}
    # After refresh(), the row doesn't say it any more.
    await body.world.table.write(
        writes.request_streams(APP, body.row, frozenset({ARN}))
    )
    await asyncio.sleep(3 * H)
    assert body.row.fan_out == {ARN: use}
    written = [write for write in body.store.sent[sent:] if "fan_out" in write.set]
    assert len(written) == 3
    assert all("beat" in write.set for write in body.store.sent[sent:])


async def test_incidents_are_written_with_heartbeats_until_they_end(
    world: World,
) -> None:
    body = await registered(world)
    incidents = body.context.incidents
    await asyncio.sleep(10)
    assert body.row.incidents == ""
    incidents.note(IncidentKind.KMS, stream_arn=ARN, error="key is disabled")
    await asyncio.sleep(2 * H)
    [shown] = read_incidents(body.row.incidents, body.row.streams)
    assert shown.kind is IncidentKind.KMS
    assert (shown.stream_arn, shown.error) == (ARN, "key is disabled")
    incidents.resolve(IncidentKind.KMS, stream_arn=ARN)
    await asyncio.sleep(2 * H)
    [stored] = [r for r in world.table.rows(f"member#{APP}") if r["sk"] == "c1"]
    assert "incidents" not in stored


async def test_the_deadline_counts_from_when_the_beat_was_sent(world: World) -> None:
    body = await registered(world)
    await asyncio.sleep(20)
    _, acknowledged = body.beats()[-1]
    assert body.lease.deadline == pytest.approx(acknowledged + TRUSTED, abs=0.01)


async def test_the_deadline_counts_from_the_first_try(world: World) -> None:
    body = await registered(world)
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


async def test_a_heartbeat_without_an_answer_is_repeated(world: World) -> None:
    body = await registered(world)
    body.store.spoil("unanswered", "beat")
    await asyncio.sleep(20)
    assert not body.events_of(SessionLost)
    assert body.lease.permits(world.clock.now())


async def test_a_heartbeat_is_given_up_after_an_interval(world: World) -> None:
    body = await registered(world)
    await asyncio.sleep(10)
    body.store.latency = 3600
    await asyncio.sleep(8)
    assert not body.lease.permits(world.clock.now())
    body.store.latency = 0.001
    await asyncio.sleep(3)
    assert body.lease.permits(world.clock.now())
    assert not body.events_of(SessionLost)


async def test_a_throttled_heartbeat_holds_other_writes_back(world: World) -> None:
    body = await registered(world)
    assert not body.heartbeater.is_throttled
    body.store.spoil("throttled", "beat")
    await world.until(lambda: body.heartbeater.is_throttled)
    refused = world.clock.now()
    await world.until(lambda: not body.heartbeater.is_throttled)
    assert world.clock.now() - refused < 1.0
    assert body.lease.permits(world.clock.now())


async def test_an_outage_ends_the_lease_but_not_the_session(world: World) -> None:
    body = await registered(world)
    row = body.row
    body.store.down = True
    await asyncio.sleep(60)
    assert not body.lease.permits(world.clock.now())
    assert not body.lease.dead
    body.store.down = False
    await asyncio.sleep(1)
    assert body.lease.permits(world.clock.now())
    assert body.row.session == row.session


async def test_a_lost_answer_to_the_registration_is_found_out(world: World) -> None:
    sent = world.clock.now()
    body = Body(world)
    body.store.spoil("unanswered", "session")
    await body.registered()
    assert body.row.incarnation == 0
    first = body.events_of(SessionRenewed)[0]
    assert first.row.session == body.row.session
    assert body.lease.deadline == pytest.approx(sent + TRUSTED, abs=0.3)


async def test_a_registration_fenced_before_its_answer_is_repeated(
    world: World,
) -> None:
    body = Body(world)
    body.store.spoil("unanswered", "session")
    await world.until(lambda: world.members())
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.events_of(SessionRenewed))
    assert (body.row.incarnation, body.row.dead) == (1, False)
    assert body.lease.session == body.row.session


async def test_a_fenced_client_registers_again_with_the_streams_set_last(
    world: World,
) -> None:
    body = await registered(world)
    row, lease = body.row, body.lease
    body.heartbeater.set_streams(frozenset({"arn:other"}))
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.events_of(SessionLost))
    assert lease.dead
    assert not lease.permits(-1e9)
    await world.until(lambda: body.row.session != row.session)
    assert (body.row.incarnation, body.row.dead) == (1, False)
    assert body.row.streams == {"arn:other"}
    assert body.lease is not lease


@pytest.mark.parametrize("drained", [True, False])
async def test_a_drained_process_stays_so_in_its_next_session(
    world: World, *, drained: bool
) -> None:
    body = await registered(world)
    row = body.row
    await world.table.write(admin_writes.drain(APP, row, drained=drained))
    await world.table.write(writes.fence(APP, body.row, "now"))
    await world.until(lambda: body.row.session != row.session)
    assert body.row.drained is drained


async def test_a_process_that_starts_again_is_not_drained(world: World) -> None:
    body = await registered(world)
    row = body.row
    await world.table.write(admin_writes.drain(APP, row, drained=True))
    await end(body)
    again = Body(world)
    assert not (await again.registered()).drained


async def test_a_new_state_is_sent_at_once_and_leaving_is_final(world: World) -> None:
    body = await registered(world)
    await asyncio.sleep(10)
    body.heartbeater.set_state("leaving")
    await asyncio.sleep(0.01)
    beats = body.row.beat
    for state in ("leaving", "degraded", "up"):
        body.heartbeater.set_state(state)
        await asyncio.sleep(0.01)
        assert (body.row.state, body.row.beat) == ("leaving", beats)


async def test_the_date_is_written_rarely(world: World) -> None:
    body = await registered(world)
    await asyncio.sleep(300)
    assert len(body.store.writes("last_update")) <= 3
    assert len(body.store.writes("beat")) > 140


async def test_a_lost_table_is_fatal(world: World) -> None:
    body = await registered(world)
    world.table.delete_table()
    await world.until(lambda: body.events_of(Failed))
    assert isinstance(body.events_of(Failed)[0].error, StateStoreMissingError)
    assert body.task.done()


# --- one id, two processes ---


async def end(body: Body) -> None:
    """End a process without a last write, like SIGKILL."""
    body.task.cancel()
    await asyncio.wait([body.task])


async def test_a_static_id_waits_for_its_dead_predecessor(world: World) -> None:
    old = await registered(world)
    row = old.row
    await asyncio.sleep(10)
    await end(old)
    began = world.clock.now()
    new = Body(world)
    await world.until(lambda: new.events_of(SessionRenewed))
    assert 8 <= world.clock.now() - began < 9
    assert new.row.session != row.session
    assert (new.row.incarnation, new.row.dead) == (1, False)


@pytest.mark.parametrize(("waited", "seconds"), [(0, 0.1), (5, 1)])
async def test_a_predecessor_that_leaves_frees_its_id(
    world: World, waited: float, seconds: float
) -> None:
    old = await registered(world)
    old.heartbeater.set_state("leaving")
    new = Body(world) if waited else None
    await asyncio.sleep(waited)
    await end(old)
    await world.table.write(writes.leave(APP, old.row, "now"))
    new = new or Body(world)
    await world.until(lambda: new.events_of(SessionRenewed), seconds)
    assert not new.events_of(Failed)


async def test_a_second_live_process_with_one_id_is_an_error(world: World) -> None:
    old = await registered(world)
    await asyncio.sleep(10)
    new = Body(world)
    await world.until(lambda: new.events_of(Failed))
    error = new.events_of(Failed)[0].error
    assert isinstance(error, ClientIdInUseError)
    assert "'c1'" in str(error)
    assert "'app'" in str(error)
    assert not old.events_of(SessionLost)


async def test_an_outage_does_not_cost_a_live_process_its_id(world: World) -> None:
    old = await registered(world)
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


# --- the watchdog ---


async def test_user_code_without_progress_gives_its_shards_up_until_it_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    body = Body(world, max_processing_seconds=60)
    row = await body.registered()
    body.busy_since = world.clock.now()
    await asyncio.sleep(59)
    assert not body.events_of(SessionLost)
    await asyncio.sleep(5)
    assert len(body.events_of(SessionLost)) == 1
    left = row._replace(dead=True, beat=body.row.beat, last_update=body.row.last_update)
    assert body.row == left
    assert "no progress for max_processing_seconds=60 s" in caplog.text
    await asyncio.sleep(240)
    assert body.row == left
    body.busy_since = world.clock.now()
    await asyncio.sleep(3)
    assert (body.row.incarnation, body.row.dead) == (1, False)
    [incident] = read_incidents(body.row.incidents, body.row.streams)
    assert (incident.kind, incident.error) == (IncidentKind.STALLED, "user code")


# --- large fleets ---

LOOK_SECONDS = 0.5


async def waiting_among(world: World, others: int) -> Body:
    """Return a session that has no plan yet, and watches ``others`` other members."""
    fleet = Fleet(world)
    for number in range(others):
        await fleet.join(f"d{number:04}", lease_ms=3_600_000)
    fleet.task.cancel()
    body = Body(world)
    await world.until(lambda: body.events_of(SessionRenewed))
    leader = Leader(
        world.context("c1"),
        Lease(body.row.session, 1e9),
        body.row,
        frozenset(),
        lambda event: None,
    )
    body.heartbeater.watch_members(leader)
    await asyncio.sleep(LOOK_SECONDS)
    return body


async def test_a_fleet_that_waits_for_its_first_plan_keeps_within_its_beats(
    world: World,
) -> None:
    others = 149
    body = await waiting_among(world, others)
    first, began = body.row.beat, world.clock.now()
    await asyncio.sleep(30)
    a_second = (body.row.beat - first) / (world.clock.now() - began)
    assert a_second * (others + 1) <= 1.2 * CLIENTS_PER_SECOND


async def test_clients_that_wait_do_not_beat_in_step(world: World) -> None:
    body = await waiting_among(world, 99)
    await asyncio.sleep(20)
    gaps = [after - before for (_, before), (_, after) in pairwise(body.beats())]
    assert max(gaps) > 1.3 * min(gaps)


@pytest.mark.parametrize("clients", [500, 5000])
async def test_heartbeats_keep_to_the_lease_in_the_row(
    world: World, clients: int
) -> None:
    body = await registered(world)
    await body.change(clients=clients)
    stated = body.row.lease_ms
    for _ in range(5):
        beat, since = body.row.beat, world.clock.now()
        await world.until(lambda beat=beat: body.row.beat > beat)  # type: ignore[misc]
        assert world.clock.now() - since < stated / 3000
        stated = body.row.lease_ms


async def test_a_longer_lease_is_stored_before_it_is_trusted(world: World) -> None:
    body = await registered(world)
    await body.change(clients=1000)
    await world.until(lambda: body.row.lease_ms == 16_000)
    await world.until(lambda: body.events_of(SessionRenewed)[-1].row.lease_ms == 16_000)
    now = world.clock.now()
    assert body.lease.deadline == pytest.approx(now + 6, abs=0.1)
    await asyncio.sleep(30)
    (*_, (_, before), (_, last)) = body.beats()
    assert last - before == pytest.approx(4, abs=0.01)
    assert body.lease.deadline == pytest.approx(last + 12, abs=0.01)
