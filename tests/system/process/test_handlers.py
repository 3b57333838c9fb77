"""Test that no record is lost if user code is slow, blocks, fails or is killed."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from tests.system.process.fleet import Fleet, scenario


@scenario
def test_a_handler_that_blocks_the_loop_keeps_its_shards(fleet: Fleet) -> None:
    fleet.stream("orders")
    a, b = fleet.started("a", "b")
    before = fleet.sessions()
    fleet.produce()
    for client in (a, b):
        client.order(block=1.5 * fleet.config["lease_duration_seconds"])
    for client in (a, b):
        fleet.until(lambda c=client: c.has("unblocked"), "it ends")  # type: ignore[misc]
    fleet.pause(1)
    fleet.drain()

    assert fleet.sessions() == before
    fleet.finish()


@scenario
def test_handlers_that_never_await_let_commits_and_hand_overs_through(
    fleet: Fleet,
) -> None:
    fleet.config["max_uncommitted_records"] = 10_000
    arn = fleet.stream("orders", 2)
    [a] = fleet.started("a")
    a.order(spin=0.01)
    fleet.pause(0.5)
    fleet.producer.put(arn, 2000)
    fleet.until(
        lambda: any(row.position for row in fleet.look().shards.values()),
        "something is committed",
    )
    committed = len(a.handled)
    fleet.start("b")
    fleet.settle("a", "b")
    moved = len(a.handled)
    a.order()
    fleet.finish()

    fleet.note(f"committed after {committed} records, moved after {moved} of 2000")
    assert committed < 1000
    assert moved < 1800


@scenario
def test_handlers_that_hang_give_their_shards_up(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    fleet.config["max_processing_seconds"] = 3.0
    a, b, _ = fleet.started("a", "b", "c")
    fleet.produce()
    fleet.pause(1)
    a.order(block=8)
    b.order(delay=8)
    took = fleet.settle("c")
    a.order()
    b.order()
    fleet.settle("a", "b", "c")
    fleet.finish(takeovers=2)

    fleet.note(f"a third client owned everything {took:.1f} s after two hung")

    # At most the record that was being handled at the time-out is repeated.


@scenario
def test_a_record_whose_handler_raised_is_delivered_again(fleet: Fleet) -> None:
    fleet.stream("orders")
    fleet.start("a", rejoins=True)
    fleet.start("b")
    fleet.settle("a", "b")
    fleet.produce()
    fleet.pause(1)
    a, b = fleet.clients
    for client in (a, b):
        client.order(fail=True)
    fleet.until(lambda: b.process.poll() is not None, "the second one ends")
    fleet.settle("a")
    fleet.finish()

    raised = [e.text for c in (a, b) for e in c.events if e.name == "raising"]
    assert len(raised) == 2
    assert b.process.poll() == 3
    # fleet.finish() has shown that the failed records were delivered again.


@scenario
def test_handlers_called_by_run_lose_nothing_when_processes_die(fleet: Fleet) -> None:
    fleet.stream("orders", 6)
    [a] = fleet.start("a", runs="thread", delay=0.005)
    [b] = fleet.start("b", runs="batch", delay=0.05)
    [c] = fleet.start("c", runs="record", delay=0.005)
    fleet.settle("a", "b", "c")
    fleet.produce(60)
    fleet.pause(1)
    a.kill()
    fleet.settle("b", "c")
    fleet.start("d", runs="thread", delay=0.005)
    fleet.settle("b", "c", "d")
    b.freeze()
    fleet.settle("c", "d")
    b.thaw()
    fleet.settle("b", "c", "d")
    fleet.leave(c)
    fleet.settle("b", "d")
    fleet.finish(takeovers=2)
    letters = [e for k in fleet.clients for e in k.events if e.name == "dead letter"]
    fleet.note(f"{len(letters)} records became dead letters")
    assert letters


class Calls(NamedTuple):
    """The calls for one shard in one epoch."""

    assigned_at: float
    revoked_at: float | None
    reason: str


def calls(fleet: Fleet) -> dict[tuple[str, str], dict[int, Calls]]:
    """Return the calls of all processes, by shard and epoch."""
    found: dict[tuple[str, str], dict[int, Calls]] = defaultdict(dict)
    for client in fleet.clients:
        for event in client.events:
            if event.name == "assigned":
                arn, shard_id, epoch = event.text.split()
                assert int(epoch) not in found[arn, shard_id]
                found[arn, shard_id][int(epoch)] = Calls(event.at, None, "")
            elif event.name == "revoked":
                arn, shard_id, epoch, reason = event.text.split()
                before = found[arn, shard_id][int(epoch)]
                assert before.revoked_at is None
                done = Calls(before.assigned_at, event.at, reason)
                found[arn, shard_id][int(epoch)] = done
    return found


@scenario
def test_callbacks_enclose_the_records_of_each_shard(fleet: Fleet) -> None:
    arn = fleet.stream("orders", 4)
    a, b = fleet.start("a", "b", callbacks=True)
    fleet.settle("a", "b")
    fleet.produce()
    fleet.pause(1)
    [c] = fleet.start("c", callbacks=True, runs="thread")
    fleet.settle("a", "b", "c")
    fleet.aws.split(arn, fleet.aws.open_shards(arn)[0])
    fleet.pause(2)
    a.kill()
    fleet.settle("b", "c")
    fleet.leave(b)
    fleet.settle("c")
    fleet.pause(1)
    fleet.leave(c)
    fleet.start("d")
    fleet.settle("d")
    fleet.finish(takeovers=4)
    found = calls(fleet)
    for client in (a, b, c):
        for record in client.handled:
            at = found[record.shard][record.epoch]
            assert at.assigned_at <= record.began
            assert at.revoked_at is None or record.ended <= at.revoked_at
    for epochs in found.values():
        ordered = [epochs[epoch] for epoch in sorted(epochs)]
        for former, later in pairwise(ordered):
            # The killed process revoked nothing.
            assert (former.revoked_at or 0.0) <= later.assigned_at
    reasons = [each.reason for epochs in found.values() for each in epochs.values()]
    assert {"moved", "ended", "closed"} <= {*reasons}
    assigned = [e for client in (b, c) for e in client.events if e.name == "assigned"]
    revoked = [e for client in (b, c) for e in client.events if e.name == "revoked"]
    assert len(assigned) == len(revoked)
    fleet.note(f"{len(assigned)} pairs of calls")
