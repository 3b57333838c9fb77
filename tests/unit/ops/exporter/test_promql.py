"""Test the evaluation of queries by which other tests try our own queries."""

from __future__ import annotations

import pytest

from tests.support.promql_evaluation import evaluate, read_scrape

SCRAPE = read_scrape(
    """
# TYPE up gauge
up{app="a"} 1
up{app="b"} 0
# TYPE members gauge
members{app="a",state="up"} 3
members{app="a",state="silent"} 1
members{app="b",state="up"} 0
# TYPE wanted gauge
wanted{app="a"} 5
"""
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up == 0", {"b": 0}),
        ('members{state="up"}', {"a up": 3, "b up": 0}),
        ('sum(members{app=~"a|b",state!="up"})', {"": 1}),
        ("sum by (app) (members)", {"a": 4, "b": 0}),
        ("max by (app) (wanted) > on (app) sum by (app) (members)", {"a": 5}),
        ("wanted < on (app) sum by (app) (members)", {}),
        ("sum(1 - up)", {"": 1}),
        ("2 * up - up", {"a": 1, "b": 0}),
        ("wanted > 1 and on (app) up == 1", {"a": 5}),
        ("up unless on (app) wanted", {"b": 0}),
        ("wanted or up", {"a": 5, "b": 0}),
        ("topk(1, members)", {"a up": 3}),
        ("rate(up[5m]) * 60", {"a": 0, "b": 0}),
        ("absent(up)", {}),
        ("absent(down)", {"": 1}),
        ("(up) >= 1", {"a": 1}),
    ],
)
def test_a_query_has_the_result_that_prometheus_documents(
    query: str, expected: dict[str, float]
) -> None:
    found = evaluate(query, SCRAPE)
    names = {" ".join(v for _, v in sorted(k)): value for k, value in found.items()}
    assert names == expected


@pytest.mark.parametrize("query", ["up up", "mean(up)", "up + on (app) members"])
def test_a_query_that_cannot_be_evaluated_is_noticed(query: str) -> None:
    with pytest.raises(AssertionError):
        evaluate(query, SCRAPE)
