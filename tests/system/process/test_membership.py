"""Test clients that join, leave, freeze and come back while records flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.system.process.scenarios import scenario
from tests.system.process.worker import StreamSettings

if TYPE_CHECKING:
    from tests.system.process.fleet import Fleet


@scenario
def test_joining_and_leaving_under_load_repeats_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    a, b = fleet.started("a", "b")
    fleet.produce(200)
    fleet.started("c")
    fleet.pause(1)
    fleet.leave(a)
    fleet.settle("b", "c")
    [d] = fleet.start("d")
    fleet.leave(b)
    fleet.settle("c", "d")
    fleet.pause(1)
    fleet.finish()

    assert d.handled


@scenario
def test_leaving_the_block_repeats_the_record_in_hand_only(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, _ = fleet.started("a", "b")
    fleet.produce(200)
    fleet.pause(1)
    a.order(leave_block=True)
    fleet.settle("b")
    fleet.pause(1)
    assert fleet.finish(takeovers=1).duplicates == 1

    assert a.process.poll() == 0


@scenario
def test_several_start_at_the_same_moment_on_an_empty_table(fleet: Fleet) -> None:
    for arn in (fleet.stream("orders", 8), fleet.stream("payments", 8)):
        fleet.producer.put(arn, 300)
    clients = fleet.start("a", "b", "c", "d")
    until_first = fleet.until(fleet.handled, "a first record")
    fleet.settle("a", "b", "c", "d")
    fleet.finish()

    fleet.note(f"first record {until_first:.1f} s after four processes were started")
    assert all(client.handled for client in clients)


@scenario
def test_a_frozen_client_wakes_up_without_delivering_as_a_zombie(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    clients = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    fleet.pause(1)
    leader = fleet.look().leader
    assert leader is not None
    first = next(client_id for client_id in clients if client_id != leader)
    for frozen in (first, leader):
        incarnation = fleet.look().members[frozen].incarnation
        clients[frozen].freeze()
        fleet.settle(*(clients.keys() - {frozen}))
        fleet.pause(0.5)
        clients[frozen].thaw()
        back = fleet.settle(*clients)
        fleet.note(f"a client that was frozen is back after {back:.1f} s")
        assert fleet.look().members[frozen].incarnation == incarnation + 1
    fleet.finish(takeovers=2)


@scenario
def test_a_short_freeze_costs_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, _ = fleet.started("a", "b")
    before = fleet.sessions()
    fleet.produce()
    for _ in range(2):
        a.freeze()
        fleet.pause(fleet.config["lease_duration_seconds"] / 3)
        a.thaw()
        fleet.pause(0.7)
    fleet.drain()

    assert fleet.sessions() == before
    fleet.finish()


@scenario
def test_a_whole_fleet_is_killed_and_started_again_with_a_backlog(
    fleet: Fleet,
) -> None:
    arns = [fleet.stream("orders"), fleet.stream("payments")]
    clients = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    for client in clients:
        client.kill()
    fleet.producer.stop()
    for arn in arns:
        fleet.producer.put(arn, 300)
    fleet.start("a", "b", "x")
    took = fleet.settle("a", "b", "x")
    fleet.note(f"a killed fleet consumes again {took:.1f} s after its start")
    fleet.finish(takeovers=1)


@scenario
def test_a_second_process_with_a_live_id_is_refused(fleet: Fleet) -> None:
    fleet.stream("orders")
    [a] = fleet.started("a")
    fleet.produce()
    before = epochs(fleet)
    [second] = fleet.start("a")
    fleet.until(lambda: second.process.poll() is not None, "the second one ends")
    fleet.pause(1)

    assert second.process.poll() == 1
    assert second.failure.startswith("ClientIdInUseError: client id 'a'")
    assert not second.handled
    assert a.process.poll() is None
    assert epochs(fleet) == before
    fleet.drain()
    fleet.finish()


@scenario
def test_a_restarted_static_id_takes_its_old_place(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    _, b, _ = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    before = fleet.look().live
    b.kill()
    fleet.start("b")
    fleet.until(lambda: fleet.look().members["b"].incarnation == 1, "b registers")
    fleet.settle("a", "b", "c")
    after = fleet.look().live
    fleet.finish(takeovers=2)

    assert {m.client_id: (m.index, m.range) for m in after.values()} == {
        m.client_id: (m.index, m.range) for m in before.values()
    }


@scenario
def test_a_rolling_restart_repeats_nothing(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.stream("payments")
    running = {c.client_id: c for c in fleet.started("a", "b", "c")}
    fleet.produce()
    for client_id in tuple(running):
        fleet.leave(running[client_id])
        [running[client_id]] = fleet.start(client_id)
    fleet.settle(*running)
    fleet.finish()


@scenario
def test_streams_are_added_and_removed_while_others_go_on(fleet: Fleet) -> None:
    orders = fleet.stream("orders")
    a, b = fleet.started("a", "b")
    payments = fleet.stream("payments")
    fleet.watcher.watch(fleet.arns)
    fleet.produce()
    for client in (a, b):
        client.order(consume=[StreamSettings(orders), StreamSettings(payments)])
    fleet.until(
        lambda: {h.shard.stream_arn for h in b.handled} == {orders, payments},
        "both streams are consumed",
    )
    a.order(consume=[StreamSettings(payments)])
    fleet.until(
        lambda: {key.stream_arn for key in fleet.owned("a")} == {payments},
        "one client has the new stream only",
    )
    fleet.settle("a", "b")
    fleet.finish()


@scenario
def test_latest_is_resolved_once_though_the_first_owner_dies(fleet: Fleet) -> None:
    fleet.config |= {"commit_interval_seconds": 60.0}
    arn = fleet.stream("orders")
    fleet.aws.put(arn, b"-1 too-early", "too-early")
    # LATEST is stored as a time, and Kinesis looks up times in whole seconds.
    fleet.pause(1.1)
    a, b = fleet.start("a", "b", start="LATEST")
    fleet.settle("a", "b")
    fleet.producer.put(arn, 100)
    fleet.until(lambda: a.handled, "one client handles records")
    a.kill()
    b.kill()
    fleet.producer.put(arn, 100)
    fleet.start("c", start="LATEST")
    fleet.finish(takeovers=2)

    assert min(h.number for h in fleet.handled()) == 0


def epochs(fleet: Fleet) -> dict[object, int]:
    return {key: row.epoch for key, row in fleet.look().shards.items()}
