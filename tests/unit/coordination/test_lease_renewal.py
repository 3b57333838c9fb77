"""Test how long a client may deliver a shard, and when it renews the lease."""

from __future__ import annotations

import math

import pytest

from kinesumer.coordination.lease_renewal import HeldLease, HeldLeases
from kinesumer.model.streams import ShardKey

SHARD = ShardKey("arn", "s1")
LEASE = HeldLease(SHARD, "session", 3, 100.0)


@pytest.fixture
def held() -> HeldLeases:
    leases = HeldLeases(9.0)
    leases.hold("s1", LEASE)
    return leases


def test_records_are_delivered_for_three_quarters_of_the_failover_time(
    held: HeldLeases,
) -> None:
    assert held.deadline(SHARD, 3) == 106.75
    held.hold("s1", LEASE._replace(written_at=103.0))
    assert held.deadline(SHARD, 3) == 109.75


def test_another_epoch_and_another_shard_are_not_held(held: HeldLeases) -> None:
    assert held.deadline(SHARD, 2) == -math.inf
    assert held.deadline(ShardKey("arn", "s2"), 3) == -math.inf


def test_a_later_claim_ends_the_epoch_before(held: HeldLeases) -> None:
    held.hold("s1", LEASE._replace(epoch=4))
    assert held.deadline(SHARD, 3) == -math.inf
    assert held.deadline(SHARD, 4) == 106.75


def test_a_released_shard_is_not_reported_as_lost(held: HeldLeases) -> None:
    lost: list[bool] = []
    held.when_lost(lambda: lost.append(True))
    held.release("s1")
    held.release("s1")
    held.lose("s1", "w1")
    assert not lost and held.deadline(SHARD, 3) == -math.inf


@pytest.mark.parametrize(
    ("worker", "text"), [("w1", "worker w1 took"), ("", "another worker took")]
)
def test_a_lost_shard_is_reported_once(
    held: HeldLeases, worker: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[bool] = []
    held.when_lost(lambda: lost.append(True))
    held.lose("s1", worker)
    held.lose("s1", worker)
    assert lost == [True] and held.by_key == {}
    assert caplog.text.count(f"{text} the lease of s1") == 1


def test_a_lease_is_due_before_a_third_of_the_failover_time(held: HeldLeases) -> None:
    held.note_beat("session", 100.0, 8.0)
    assert held.due(102.0) == []
    assert held.due(102.25) == ["s1"]


def test_no_lease_is_due_without_heartbeats_of_its_session(held: HeldLeases) -> None:
    assert held.due(105.0) == []
    held.note_beat("session", 100.0, 8.0)
    assert held.due(107.9) == ["s1"]
    assert held.due(108.0) == []
    held.note_beat("next session", 104.0, 8.0)
    assert held.due(105.0) == []
