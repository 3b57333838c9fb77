"""Test how a reader's share of a shard falls and grows."""

from __future__ import annotations

import pytest

from kinesumer.core.fair_share import (
    CALL_SECONDS,
    CUT,
    FEWEST_READS_PER_SECOND,
    GROWTH_READS_PER_SECOND,
    PAGE_BYTES,
    SHARED_PAGE_BYTES,
    Share,
)

START = 1000.0
ALL = 1 / CALL_SECONDS


def share(apps: int = 1, cuts: int = 0) -> Share:
    share = Share()
    share.share_among(apps)
    for number in range(cuts):
        share.cut(START + 10 * number, used=ALL)
    return share


@pytest.mark.parametrize("apps", [1, 2, 3, 5, 12])
def test_known_apps_have_equal_shares(apps: int) -> None:
    assert share(apps).rate == pytest.approx(ALL / apps)


def test_a_share_follows_the_number_of_apps() -> None:
    changing = share(3)
    changing.share_among(2)
    assert changing.rate == pytest.approx(ALL / 2)
    changing.cut(START, used=1.5)
    changing.share_among(1)
    assert changing.rate == pytest.approx(CUT * 1.5)  # others may read, too
    changing.share_among(12)
    assert changing.rate == pytest.approx(ALL / 12)


def test_a_refusal_cuts_the_rate_of_the_actual_reads() -> None:
    slow, fast = share(), share()
    slow.cut(START, used=2.0)
    fast.cut(START, used=100.0)
    assert slow.rate == pytest.approx(CUT * 2.0)
    assert fast.rate == pytest.approx(CUT * ALL)


def test_a_cut_is_given_time_to_show_its_effect() -> None:
    cut = share()
    cut.cut(START, used=2.0)
    cut.cut(START + 0.6, used=2.0)
    assert cut.rate == pytest.approx(CUT * 2.0)
    cut.cut(START + 0.7, used=2.0)
    assert cut.rate == pytest.approx(CUT**2 * 2.0)


def test_refusals_leave_a_share_at_least_its_minimum_or_its_equal_part() -> None:
    assert share(cuts=100).rate == FEWEST_READS_PER_SECOND
    assert share(apps=12, cuts=100).rate == pytest.approx(ALL / 12)


def test_a_share_grows_with_time_up_to_its_equal_part() -> None:
    growing = share(apps=2, cuts=1)
    cut = growing.rate
    growing.grow(10.0)
    assert growing.rate == pytest.approx(cut + 10 * GROWTH_READS_PER_SECOND)
    growing.grow(1000.0)
    assert growing.rate == pytest.approx(ALL / 2)


def test_pages_are_small_while_others_read_the_shard() -> None:
    assert share().page_bytes == PAGE_BYTES
    assert share(apps=2).page_bytes == SHARED_PAGE_BYTES
    alone = share(cuts=1)
    assert alone.page_bytes == SHARED_PAGE_BYTES
    alone.grow(1000.0)
    assert alone.page_bytes == PAGE_BYTES


def test_a_page_is_paid_for_from_the_share_of_the_bytes() -> None:
    assert share().pause_seconds(1_000_000) == pytest.approx(0.5)
    assert share(apps=2).pause_seconds(1_000_000) == pytest.approx(1.0)
    assert share(apps=2).pause_seconds(0) == pytest.approx(2 * CALL_SECONDS)
