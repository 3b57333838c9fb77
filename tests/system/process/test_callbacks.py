"""Test that callbacks enclose the records of shards, in processes that come and go."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from tests.system.process.fleet import Fleet
from tests.system.process.scenarios import scenario


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
