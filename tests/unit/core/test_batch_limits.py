"""Test that a batch's limits are divided so that shards advance evenly in time."""

from __future__ import annotations

import pytest

from kinesumer.core.batch_limits import Limits, ProbedRecord, Sample, Share, admit
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey

A, B, C = (ShardKey("arn", shard_id) for shard_id in "abc")


def found(number: int, arrived_at: float, size: int = 100) -> ProbedRecord:
    return ProbedRecord(Position(str(number)), arrived_at, size)


def sample(*arrivals: float, whole: bool = True, size: int = 100) -> Sample:
    records = [found(i, arrived, size) for i, arrived in enumerate(arrivals)]
    return Sample(records, whole)


def test_the_oldest_records_are_admitted_first() -> None:
    samples = {A: sample(1.0, 2.0, 3.0, 4.0), B: sample(2.5, 2.6, 9.0)}
    assert admit(samples, Limits(rows=4)) == {A: Share(2), B: Share(2)}
    assert admit(samples, Limits(bytes=350)) == {A: Share(2), B: Share(1)}


def test_a_batch_makes_progress_whatever_the_limit() -> None:
    assert admit({A: sample(1.0, size=5_000)}, Limits(bytes=1)) == {A: Share(1)}


def test_records_after_the_samples_are_admitted_by_time() -> None:
    samples = {
        A: sample(*(i / 10 for i in range(101)), whole=False),
        B: sample(5.0, 50.0, 60.0, 500.0),
    }
    shares = admit(samples, Limits(rows=522))
    # At 100 rows per ten seconds, another 420 rows arrive within 42 seconds.
    assert shares[A].until == pytest.approx(51.5, abs=1)
    assert shares[B].records == 2


def test_no_record_is_admitted_that_arrived_after_the_common_end() -> None:
    samples = {
        A: sample(1.0, 2.0, 3.0, whole=False),
        B: sample(2.5, 2.6, 9.0, whole=False).up_to(6.0),
        C: sample(7.0).up_to(6.0),
    }
    assert admit(samples, Limits(), 6.0) == {A: Share(3, 6.0), B: Share(2), C: Share(0)}
    assert admit(samples, Limits(rows=2), 6.0)[A] == Share(2)


def test_records_of_an_ended_shard_count_as_arrived_by_its_end() -> None:
    assert sample(1.0, 9.0).as_before(6.0) == Sample(
        [found(0, 1.0), found(1, 6.0)], True
    )


def test_a_burst_shows_that_the_server_does_not_limit_writes() -> None:
    burst = {A: sample(*(i / 6_000 for i in range(600)), whole=False)}
    until = admit(burst, Limits(rows=6_600))[A].until
    assert until == pytest.approx(1.1, abs=0.01)


def test_without_limits_all_records_are_admitted() -> None:
    assert not Limits().any
    samples = {A: sample(1.0, whole=False), B: sample(2.0)}
    assert admit(samples, Limits()) == {A: Share(1, float("inf")), B: Share(1)}
