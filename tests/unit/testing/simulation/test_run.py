"""Test that drawn groups get pairs and triples of every kind of fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement

from kinesumer.testing.simulation.run import LEASE_SECONDS, draw_run, parse_rates
from kinesumer.testing.simulation.scenarios import DRAWN, Fault, scenario_for
from kinesumer.testing.simulation.service_faults import EVERY_KIND


def drawn_faults() -> Iterator[Sequence[Fault]]:
    """Yield the faults of 400 drawn groups, in an hour each."""
    for seed in range(400):
        scenario = scenario_for(DRAWN, seed)
        rates = parse_rates(scenario.faults, scenario.faults_per_minute)
        yield draw_run(scenario, seed, 60.0, rates).faults


def begin_within_a_lease(faults: Sequence[Fault]) -> Iterator[list[Fault]]:
    """Yield for each fault the faults that begin within one lease, itself first."""
    for index, first in enumerate(faults):
        later = faults[index:]
        yield [fault for fault in later[:9] if fault.at - first.at <= LEASE_SECONDS]


def test_each_two_kinds_of_faults_begin_within_one_lease_and_most_overlap() -> None:
    pairs, are_at_work = set(), Counter[bool]()
    for faults in drawn_faults():
        for first, *others in begin_within_a_lease(faults):
            for other in others:
                pairs.add(tuple(sorted((first.kind, other.kind))))
                are_at_work[other.at < first.at + first.duration_seconds] += 1

    assert pairs == {*combinations_with_replacement(sorted(EVERY_KIND), 2)}
    assert are_at_work[True] > 2 * are_at_work[False]


def test_each_kind_of_fault_comes_in_triples_of_different_kinds() -> None:
    triples = Counter[str]()
    for faults in drawn_faults():
        for first, *others in begin_within_a_lease(faults):
            for second, third in combinations(others, 2):
                kinds = {first.kind, second.kind, third.kind}
                triples.update(kinds if len(kinds) == 3 else ())

    assert triples.keys() == EVERY_KIND.keys()
    assert min(triples.values()) > 500
