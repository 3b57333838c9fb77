"""Mishaps of processes, streams, services, and the connections to services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinesumer.testing.embedded_aws.faults import Kind
from tests.system.chaos.storm import MAX_SQUEEZE_SECONDS, Mishap, Storm
from tests.system.process.cable import State
from tests.system.process.machine import DESCRIPTORS, THREADS

MOST_SHARDS = 6
FLOOD = 150
HOUR = 3600.0

# --- processes ------------------------------------------------------------------------


def kill(storm: Storm) -> str:
    victim = storm.any()
    storm.kill(victim)
    same = storm.chance.random() < 0.5
    storm.later(lambda: _rejoin(storm, victim.client_id if same else None))
    return f"{victim.client_id}, back {'as the same' if same else 'under a new id'}"


def _rejoin(storm: Storm, client_id: str | None) -> None:
    if client_id not in {c.client_id for c in storm.fleet.running}:
        storm.join(client_id)


def freeze(storm: Storm) -> str:
    victim = storm.any()
    victim.freeze()
    storm.later(victim.thaw)
    return victim.client_id


def replace(storm: Storm) -> str:
    victim = storm.any()
    storm.send_away(victim)
    return f"{victim.client_id} by {storm.join().client_id}"


def restart(storm: Storm) -> str:
    victim = storm.any()
    storm.send_away(victim, victim.client_id)
    return victim.client_id


def block(storm: Storm) -> str:
    victim = storm.any()
    victim.order(
        block=storm.chance.uniform(0.2, 1.3)
        * storm.fleet.config["max_processing_seconds"]
    )
    return victim.client_id


def slow_down(storm: Storm) -> str:
    victim = storm.any()
    delay = storm.chance.choice((0.05, 0.3, 3.0, 8.0))
    victim.order(delay=delay)
    storm.later(victim.order)
    return f"{victim.client_id}, {delay:g} s a record"


def fail(storm: Storm) -> str:
    victim = storm.any()
    victim.order(fail=True)
    return victim.client_id


def jump(storm: Storm) -> str:
    victim = storm.any()
    seconds = storm.chance.choice((-24 * HOUR, -HOUR, -10.0, 10.0, HOUR, 24 * HOUR))
    victim.order(wall=seconds)
    return f"{victim.client_id} by {seconds:+.0f} s"


def squeeze(storm: Storm) -> str:
    victim = storm.any()
    left = storm.chance.choice((0, 64, 256, 1024, 4096)) << 10
    victim.order(
        squeeze=storm.chance.uniform(0.5, MAX_SQUEEZE_SECONDS), left_bytes=left
    )
    return f"{victim.client_id}, {left >> 10} KiB left"


def refuse(storm: Storm) -> str:
    victim = storm.any()
    kinds = storm.chance.choice(
        ([THREADS], [DESCRIPTORS], [THREADS, DESCRIPTORS], [THREADS, DESCRIPTORS])
    )
    victim.order(refused=kinds, refuse=storm.chance.uniform(0.5, MAX_SQUEEZE_SECONDS))
    return f"{victim.client_id}, {' and '.join(kinds)}"


# --- streams --------------------------------------------------------------------------


def _any_stream(storm: Storm) -> str:
    arn: str = storm.chance.choice(storm.fleet.streams).name
    return arn


def split(storm: Storm, arn: str = "") -> str | None:
    arn = arn or _any_stream(storm)
    shards = storm.fleet.aws.open_shards(arn)
    if len(shards) >= MOST_SHARDS:
        return None
    shard = storm.chance.choice(shards)
    storm.fleet.aws.split(arn, shard)
    return f"{_name(arn)} {shard}"


def merge(storm: Storm, arn: str = "") -> str | None:
    arn = arn or _any_stream(storm)
    shards = storm.fleet.aws.open_shards(arn)
    if len(shards) < 3:
        return None
    place = storm.chance.randrange(len(shards) - 1)
    storm.fleet.aws.merge(arn, *shards[place : place + 2])
    return f"{_name(arn)} {' '.join(shards[place : place + 2])}"


def reshard_in_a_chain(storm: Storm) -> str:
    """Split and merge shards faster than any client can read them."""
    arn = _any_stream(storm)
    for _ in range(storm.chance.randint(3, 6)):
        storm.chance.choice((split, merge))(storm, arn)
        storm.fleet.pause(storm.chance.uniform(0, 0.4))
    return _name(arn)


def update_shard_count(storm: Storm) -> str | None:
    arn = _any_stream(storm)
    count = len(storm.fleet.aws.open_shards(arn))
    target = storm.chance.randint((count + 1) // 2, min(2 * count, MOST_SHARDS))
    if target == count:
        return None
    storm.fleet.scale(arn, target)
    return f"{_name(arn)} from {count} to {target}"


def flood(storm: Storm) -> str:
    """Put more records at once than clients can handle within seconds."""
    arn = _any_stream(storm)
    storm.fleet.producer.add(arn, FLOOD)
    return _name(arn)


def forget_a_stream(storm: Storm) -> str | None:
    """Let all clients stop consuming a stream, and resume it some time later."""
    streams = storm.fleet.streams
    if len(streams) < 2 or storm.removed:
        return None
    gone = storm.chance.choice(streams)
    storm.removed.append(gone)
    storm.consume([stream for stream in streams if stream is not gone])

    def come_back() -> None:
        storm.removed.remove(gone)
        storm.consume([gone, *storm.fleet.streams])

    storm.later(come_back)
    return _name(gone.name)


def add_a_stream(storm: Storm) -> str | None:
    fleet = storm.fleet
    if storm.removed or len(fleet.streams) > storm.streams:
        return None
    shards = storm.chance.randint(1, 4)
    name = f"stream-{len(fleet.arns)}"
    arn = fleet.stream(name, shards, storm.fan_out_of(len(fleet.arns)))
    fleet.producer.switch([stream.name for stream in fleet.streams])
    storm.consume(fleet.streams)
    return _name(arn)


def _name(arn: str) -> str:
    return arn.rpartition("/")[2]


# --- services -------------------------------------------------------------------------


def cut_off(storm: Storm) -> str:
    victim = storm.any()
    services = storm.chance.choice((["dynamodb"], ["kinesis"], ["dynamodb", "kinesis"]))
    ways: tuple[State, ...] = ("cut", "silent", "one-way")
    way = storm.chance.choice(ways)
    cables = [victim.cables[service] for service in services]
    for cable in cables:
        cable.set(way)

    def repair() -> None:
        if victim.cables:
            for cable in cables:
                cable.set("whole")

    storm.later(repair)
    return f"{victim.client_id} from {' and '.join(services)}, {way}"


def break_service(storm: Storm) -> str:
    of_both: tuple[Kind, ...] = ("refuse", "drop", "error", "throttle", "latency")
    of_kinesis: tuple[Kind, ...] = ("expired_iterator", "no_iterator")
    kind = storm.chance.choice((*of_both, *of_kinesis))
    service = storm.chance.choice(("dynamodb", "kinesis"))
    if kind in of_kinesis:
        service = "kinesis"
    latency = storm.chance.uniform(0.1, 1.5) if kind == "latency" else 0.0
    chances = (0.2, 0.6, 1.0)
    return _order(storm, kind, chances, service, latency_seconds=latency)


def break_subscriptions(storm: Storm) -> str:
    """Let subscriptions end early, or go silent, or be refused."""
    kinds: tuple[Kind, ...] = ("cut", "exception_event", "corrupt", "stall")
    kinds += ("no_continuation", "throttle", "error")
    chances = (0.05, 0.3, 1.0)
    kind = storm.chance.choice(kinds)
    return _order(storm, kind, chances, "kinesis", operation="SubscribeToShard")


def _order(
    storm: Storm, kind: Kind, chances: Sequence[float], service: str, **which: Any
) -> str:
    """Order a fault of the calls of all clients, and undo that later."""
    probability = storm.chance.choice(chances)
    number = storm.fleet.aws.fault(
        kind,
        service=service,
        user_agent="kinesumer/",
        probability=probability,
        **which,
    )
    storm.later(lambda: storm.fleet.aws.clear_faults(number))
    what = f"{kind} of {'subscriptions' if 'operation' in which else service}"
    storm.counts[what] += 1
    return f"{what}, {probability:.0%}"


def lose_the_store(storm: Storm) -> str:
    """Make the state store unavailable for one to three lease durations."""
    lease = storm.fleet.config["lease_duration_seconds"]
    seconds = storm.chance.uniform(1, 3) * lease
    storm.fleet.aws.fault(
        "refuse", service="dynamodb", user_agent="kinesumer/", seconds=seconds
    )
    return f"for {seconds:.1f} s"


MISHAPS = (
    Mishap("SIGKILL", kill, 2),
    Mishap("SIGSTOP and SIGCONT", freeze, 2),
    Mishap("SIGTERM, replaced by a new id", replace),
    Mishap("SIGTERM, restarted under its id", restart),
    Mishap("a handler blocks", block),
    Mishap("a handler is slow", slow_down),
    Mishap("a handler fails", fail),
    Mishap("a wall clock jumps", jump),
    Mishap("memory pressure", squeeze),
    Mishap("no threads or descriptors", refuse),
    Mishap("split", split, 1.5),
    Mishap("merge", merge, 1.5),
    Mishap("reshards in a chain", reshard_in_a_chain, 0.5),
    Mishap("update shard count", update_shard_count),
    Mishap("a flood of records", flood, 2),
    Mishap("a stream is removed by refresh", forget_a_stream),
    Mishap("a stream is added by refresh", add_a_stream, 0.5),
    Mishap("a client is cut off", cut_off, 3),
    Mishap("a service fails", break_service, 3),
    Mishap("the state store is down", lose_the_store, 0.5),
    Mishap("a subscription fails", break_subscriptions, 2),
)
RESHARDS = ("split", "merge", "reshards in a chain", "update shard count")
FAULTS = ("a service fails", "the state store is down", "a subscription fails")
