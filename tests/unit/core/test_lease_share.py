"""Test that a client takes its share of a KCL fleet's leases, as a KCL worker does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.lease_share import LeaseUse, fair_share, leases_to_take

ME = "me"


def uses(text: str, reach: str = "") -> list[LeaseUse]:
    """Return leases: "a" and "b" are of KCL workers, "m" is mine, "o" a client's.

    "A" wasn't renewed for the failover time, and "." has no owner. ``reach`` has a "-"
    for each lease out of reach.
    """
    workers = {"m": ME, "o": "other client", ".": ""}
    return [
        LeaseUse(
            key=str(at),
            worker=workers.get(letter, letter.lower()),
            is_foreign=letter.lower() in "ab",
            is_available=letter in ".AB",
            in_reach=reach[at : at + 1] != "-",
        )
        for at, letter in enumerate(text)
    ]


def taken(text: str, reach: str = "", steals: int = 1) -> str:
    return "".join(leases_to_take(uses(text, reach), ME, steals))


def test_the_share_is_rounded_up_and_at_least_one() -> None:
    assert [fair_share(n, 3) for n in (0, 1, 3, 4, 6, 7)] == [1, 1, 1, 2, 2, 3]


def test_all_available_leases_are_taken_whatever_the_share_is() -> None:
    assert taken("..mo") == "01"
    assert taken("AAAA") == "0123"
    assert taken("aammmA.") == "56"


def test_only_leases_in_reach_are_taken() -> None:
    assert taken("aa....", "---..-") == "34"
    assert taken("aaa.", "---.") == "3"
    assert taken("....", "--..") == "23"


def test_without_available_leases_one_is_stolen_from_the_most_loaded_worker() -> None:
    assert taken("abbb") == "1"
    assert taken("abbbbbb", steals=2) == "12"
    assert taken("abbbbbb", ".---...", steals=2) == "45"


def test_clients_of_the_group_count_as_workers() -> None:
    assert taken("aaaaaommm") == ""  # the share is three
    assert taken("aaaaaammm") == "0"


def test_no_lease_is_stolen_while_there_is_one_without_an_owner() -> None:
    assert taken("bbbbbb.") == "6"


def test_no_worker_is_left_with_less_than_its_share() -> None:
    assert taken("ab") == ""
    assert taken("aaabbb", steals=9) == "03"  # three workers, two leases each
    assert taken("aabb", steals=9) == "0"  # all have their share, and I have none
    assert taken("aabbm", steals=9) == ""


def test_leases_of_clients_are_not_stolen() -> None:
    assert taken("aoooo") == ""


@given(st.text("abmo.A", max_size=12), st.text("-.", max_size=12))
def test_what_is_taken_is_in_reach_and_not_mine(text: str, reach: str) -> None:
    known = {use.key: use for use in uses(text, reach)}
    chosen = leases_to_take(list(known.values()), ME, 1)
    assert len({*chosen}) == len(chosen)
    assert all(known[key].in_reach and known[key].worker != ME for key in chosen)
    assert sum(not known[key].is_available for key in chosen) <= 1


@given(st.integers(1, 4), st.integers(1, 30))
def test_workers_that_take_in_turn_end_with_even_shares(
    workers: int, leases: int
) -> None:
    owners = ["w0"] * leases
    for _ in range(leases * 2):
        for number in range(workers):
            me = f"w{number}"
            now = [
                LeaseUse(str(at), owner, owner != me, False, True)
                for at, owner in enumerate(owners)
            ]
            for key in leases_to_take(now, me, 1):
                owners[int(key)] = me
    counts = [owners.count(f"w{number}") for number in range(workers)]
    assert max(counts) - min(counts) <= max(1, fair_share(leases, workers) - 1)
    assert max(counts) <= fair_share(leases, workers) + 1
    assert min(counts) >= 1 or leases < workers
