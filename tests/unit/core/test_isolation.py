"""Test how claims count owners' deaths, and when deaths name a record."""

from __future__ import annotations

import pytest

from kinesumer.core.isolation import after_death, may_have_killed
from kinesumer.model.positions import Position
from kinesumer.model.rows import NO_DEATHS, Deaths, ShardRow
from kinesumer.model.streams import ShardKey, Start

ROW = ShardRow(ShardKey("arn", "s1"), 0, 9, Start.TRIM_HORIZON, ready=True)
P10, P11, P12, P13 = (Position(str(number)) for number in range(10, 14))
NOW = 60.0


def claim_after(position: Position | None, deaths: Deaths) -> Deaths:
    return after_death(ROW._replace(position=position, deaths=deaths), NOW)


def test_the_first_death_is_counted() -> None:
    assert claim_after(P10, NO_DEATHS) == Deaths(1, NOW)


def test_a_death_counts_only_if_the_owner_had_a_suspect() -> None:
    assert claim_after(P10, Deaths(2, 5.0)) == Deaths(2, NOW)
    assert claim_after(P10, Deaths(2, 5.0, tried=P11)) == Deaths(3, NOW)


def test_small_progress_before_the_isolation_does_not_end_the_count() -> None:
    assert claim_after(P12, Deaths(1, 5.0, tried=P11)) == Deaths(2, NOW)


@pytest.mark.parametrize("position", [P11, P12])
def test_in_isolation_a_record_that_is_done_is_no_suspect(position: Position) -> None:
    assert claim_after(position, Deaths(3, 5.0, tried=P11)) == Deaths(3, NOW)


@pytest.mark.parametrize("position", [None, P10])
def test_the_second_death_in_isolation_names_the_record(
    position: Position | None,
) -> None:
    first = claim_after(position, Deaths(3, 5.0, tried=P11))
    assert first == Deaths(4, NOW, suspect=P11)
    second = claim_after(position, first._replace(tried=P11))
    assert second == Deaths(5, NOW, suspect=P11, poison=P11)


def test_progress_in_isolation_makes_another_record_the_suspect() -> None:
    deaths = Deaths(4, 5.0, tried=P12, suspect=P11)
    assert claim_after(P11, deaths) == Deaths(5, NOW, suspect=P12)
    named = Deaths(5, 5.0, tried=P13, suspect=P11, poison=P11)
    assert claim_after(P12, named) == Deaths(6, NOW, suspect=P13)


def test_deaths_at_two_unacknowledged_records_name_none_of_them() -> None:
    deaths = Deaths(4, 5.0, tried=P13, suspect=P12)
    assert claim_after(P10, deaths) == Deaths(5, NOW, suspect=P13)


def test_another_record_is_named_after_its_second_death() -> None:
    named = Deaths(5, 5.0, tried=P11, suspect=P13, poison=P13)
    first = claim_after(P10, named)
    assert first == Deaths(6, NOW, suspect=P11, poison=P13)
    second = claim_after(P10, first._replace(tried=P11))
    assert second == Deaths(7, NOW, suspect=P11, poison=P11)


def test_a_record_that_arrived_after_the_last_death_is_no_suspect() -> None:
    deaths = Deaths(1, 100.0)
    assert may_have_killed(deaths, None)
    assert may_have_killed(deaths, 100.0)
    assert not may_have_killed(deaths, 100.1)


def test_a_poison_record_is_void_once_it_is_passed_or_the_shard_has_ended() -> None:
    row = ROW._replace(deaths=Deaths(5, poison=P11))
    assert row.poison == row._replace(position=P10).poison == P11
    assert row._replace(position=P11).poison is None
    assert row._replace(ended=True).poison is None
    assert row.is_isolated
    assert not row._replace(ended=True).is_isolated
    assert not ROW._replace(deaths=Deaths(2)).is_isolated
