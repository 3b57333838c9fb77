"""Members with problems, and pauses."""

from __future__ import annotations

from kinesumer.admin.doctor.finding import Severity
from kinesumer.admin.doctor.members import member_problems, operator_pauses
from kinesumer.model.rows import GroupRow, LeaderRow
from tests.support.doctor import ARN, found, member, row, seen


def test_a_row_that_cant_be_read_is_critical() -> None:
    [one] = member_problems(seen(found(corrupt=("row x can't be read",))))
    assert (one.severity, one.text) == (Severity.CRITICAL, "row x can't be read")


def test_no_live_client_is_critical_if_there_are_streams() -> None:
    [one] = member_problems(seen(found(members=[member("a", dead=True)])))
    assert one.severity is Severity.CRITICAL
    assert "no client is alive" in one.text
    [one] = member_problems(
        seen(found(members=[member("a", dead=True)], streams=[], shards={}))
    )
    assert one.severity is Severity.NOTE


def test_a_reset_that_was_cut_off_is_critical() -> None:
    cut_off = found(group=GroupRow("id", resetting=True))
    [one] = member_problems(seen(cut_off))
    assert one.severity is Severity.CRITICAL
    assert "clients can't start" in one.text
    assert not list(member_problems(seen(cut_off, found())))


def test_a_missing_leader_is_reported_if_it_lasts() -> None:
    leaderless = found(leader=None)
    assert any(
        "no client has led" in one.text for one in member_problems(seen(leaderless))
    )
    assert not list(member_problems(seen(leaderless, found())))


def test_a_leader_that_changes_again_and_again_is_reported() -> None:
    later = found(leader=LeaderRow("session of a", "a", 4))
    assert "changed 3 times" in next(member_problems(seen(found(), later))).text
    once = found(leader=LeaderRow("session of a", "a", 2))
    assert not list(member_problems(seen(found(), once)))


def test_no_live_client_is_critical_though_the_last_one_isnt_fenced() -> None:
    one, two = member_problems(seen(heartbeat_ages={"session of a": 5.0}))
    assert "no client is alive" in one.text
    assert "unchanged" in two.text


def test_a_stalled_heartbeat_is_reported() -> None:
    silent = {"session of a": 5.0, "session of b": 0.5}
    [one] = member_problems(
        seen(found(members=[member("a"), member("b")]), heartbeat_ages=silent)
    )
    assert "unchanged for 5.0 s" in one.text
    assert not list(member_problems(seen(heartbeat_ages={"session of a": 2.5})))


def test_degraded_and_drained_members_are_reported() -> None:
    [one] = member_problems(seen(found(members=[member("a", state="degraded")])))
    assert one.severity is Severity.WARNING
    [one] = member_problems(seen(found(members=[member("a", drained=True)])))
    assert one.severity is Severity.NOTE


def test_every_kind_of_pause_is_reported() -> None:
    [one] = operator_pauses(seen(found(group=GroupRow("id", True, "lunch"))))
    assert one.text == "all streams are paused: lunch"
    stream = found().streams[0]._replace(paused=True)
    [one] = operator_pauses(seen(found(streams=[stream])))
    assert (one.subject, one.text) == (ARN, "is paused")
    [one] = operator_pauses(
        seen(found([row(0, paused=True), row(1, ended=True, paused=True)]))
    )
    assert one.text == "paused: shardId-0"
