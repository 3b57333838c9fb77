"""Hot shards, throttled shards, shard quotas, idle clients."""

from __future__ import annotations

from typing import Any

from kinesumer.admin.doctor.capacity import (
    hot_shards,
    idle_clients,
    shard_quota,
    throttled_shards,
)
from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.lag_trend import ArrivalSample
from kinesumer.aws.account import AccountLimits
from tests.support.doctor import (
    ARN,
    KEYS,
    found,
    listed,
    look,
    member,
    row,
    seen,
)


def arriving(**shards: ArrivalSample) -> Any:
    return seen(streams={ARN: listed(arriving=shards)})


def test_a_shard_near_its_limit_is_hot() -> None:
    by_count = ArrivalSample(9_000, 9_000, 10.0)
    by_size = ArrivalSample(900, 9 << 20, 10.0)
    [one] = hot_shards(arriving(a=by_count, b=by_size))
    assert one.severity is Severity.WARNING
    assert "a (90%), b (90%)" in one.text


def test_a_shard_far_above_the_others_is_noted() -> None:
    usual = ArrivalSample(200, 200, 10.0)
    [one] = hot_shards(arriving(a=usual, b=usual, c=ArrivalSample(3_000, 3_000, 10.0)))
    assert one.severity is Severity.NOTE
    assert "c (30% of a shard's limit, the median is 2%)" in one.text


def test_little_traffic_may_be_uneven() -> None:
    none = ArrivalSample(0, 0, 10.0)
    assert not list(
        hot_shards(arriving(a=none, b=none, c=ArrivalSample(300, 300, 10.0)))
    )
    assert not list(hot_shards(arriving(a=ArrivalSample(3_000, 3_000, 10.0))))
    assert not list(hot_shards(arriving()))


def test_throttled_reads_of_a_shard_that_is_caught_up_show_other_consumers() -> None:
    refusing = listed(throttled={"shardId-0": 2, "shardId-1": 1})
    [one] = throttled_shards(seen(streams={ARN: refusing}))
    assert one.severity is Severity.WARNING
    assert "shardId-0 throttled the doctor's reads" in one.text


def test_throttled_reads_of_a_shard_that_is_behind_come_from_its_owner() -> None:
    refusing = listed(throttled={"shardId-0": 2}, second={KEYS[0]: look(10, 60_000)})
    [one] = throttled_shards(seen(streams={ARN: refusing}))
    assert one.severity is Severity.NOTE


def test_an_account_that_is_nearly_full_is_reported() -> None:
    [one] = shard_quota(AccountLimits(450, 500))
    assert "450 of 500 shards" in one.text
    assert not list(shard_quota(AccountLimits(449, 500)))
    assert not list(shard_quota(None))


def test_clients_without_shards_are_noted() -> None:
    three = [member(name) for name in "abc"]
    [one] = idle_clients(seen(found(members=three)))
    assert one.text.startswith("3 clients share 2 shards")
    assert not list(idle_clients(seen(found(members=three[:2]))))
    assert not list(
        idle_clients(seen(found(members=[*three[:2], member("d", drained=True)])))
    )
    assert not list(idle_clients(seen(found([row(0, ended=True)], three))))
