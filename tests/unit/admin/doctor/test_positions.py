"""Invalid positions, and records that soon expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesumer.admin.doctor.finding import Finding, Severity
from kinesumer.admin.doctor.positions import expiring_records
from kinesumer.model.streams import Start
from tests.support.doctor import ARN, KEYS, listed, look, seen

if TYPE_CHECKING:
    from kinesumer.admin.lag_trend import LagSample


from kinesumer.admin import verify
from kinesumer.admin.doctor.positions import invalid_positions


def positions(*verdicts: verify.Verdict) -> Any:
    found = dict(zip(KEYS, verdicts, strict=True))
    return list(invalid_positions(seen(streams={ARN: listed(verdicts=found)})))


def test_positions_that_are_right_arent_reported() -> None:
    assert positions(verify.THERE, verify.QUIET) == []
    assert positions(verify.ENDED, verify.NOT_STARTED) == []


def test_each_verdict_is_reported_once_with_its_shards() -> None:
    [one] = positions(verify.EXPIRED, verify.EXPIRED)
    assert one.severity is Severity.WARNING
    assert one.text.startswith("expired: shardId-0, shardId-1: its record is older")
    two = positions(verify.FOREIGN, verify.EXPIRED)
    assert [each.severity for each in two] == [Severity.CRITICAL, Severity.WARNING]


def test_a_position_that_couldnt_be_read_isnt_reported() -> None:
    refused = verify.Verdict(verify.UNCHECKED, Severity.WARNING, "slow down")
    assert positions(refused, verify.THERE) == []


HOUR = 3_600_000
MOVED = Start.TRIM_HORIZON


def findings(before: LagSample, after: LagSample) -> list[Finding]:
    streams: dict[str, Any] = {
        ARN: listed(first={KEYS[0]: before}, second={KEYS[0]: after})
    }
    return list(expiring_records(seen(streams=streams)))


def test_a_shard_that_couldnt_be_read_isnt_reported_as_lost() -> None:
    assert findings(look(0, 1), look(10, None, problem="throttled")) == []


def test_an_old_lag_that_grows_is_reported_with_the_time_that_is_left() -> None:
    [one] = findings(look(0, 14 * HOUR), look(10, 14 * HOUR + 10_000))
    assert one.severity is Severity.WARNING
    assert (
        "58% of its retention old; at this rate records are lost in 10.0 h" in one.text
    )


def test_it_is_urgent_near_the_end() -> None:
    [one] = findings(look(0, 20 * HOUR), look(10, 20 * HOUR + 10_000))
    assert one.severity is Severity.CRITICAL


def test_a_lag_that_falls_is_reported_only_near_the_end() -> None:
    assert findings(look(0, 15 * HOUR), look(10, 14 * HOUR, MOVED)) == []
    [one] = findings(look(0, 21 * HOUR), look(10, 20 * HOUR, MOVED))
    assert one.severity is Severity.WARNING
    assert "though the lag falls" in one.text


def test_a_small_lag_may_grow() -> None:
    assert findings(look(0, HOUR), look(10, HOUR + 10_000)) == []


def test_one_sample_is_enough_near_the_end() -> None:
    [one] = findings(look(0, None, problem="throttled"), look(10, 20 * HOUR))
    assert one.severity is Severity.CRITICAL
