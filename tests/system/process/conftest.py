"""Runs a few scenarios at the same time, because scenarios mostly wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kinesumer.testing import EmbeddedAws, Limits, background
from tests.system.process.fleet import AT_ONCE, Ahead, Fleet, Scenario

SUBSCRIPTION_SECONDS = 8.0


@pytest.fixture(scope="session")
def ahead(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ahead]:
    """Run the scenarios of all selected tests in order, a few at the same time."""
    folder = tmp_path_factory.mktemp("fleets")
    aborted = threading.Event()

    def play(aws: EmbeddedAws, number: int, scenario: Scenario) -> list[str]:
        with Fleet(aws, f"app{number}", folder, aborted) as fleet:
            scenario(fleet)
            return fleet.figures

    wanted: list[Scenario] = [
        item.function.scenario
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item.function, "scenario")
    ]
    # Subscriptions end soon, so that each scenario with fan-out sees renewals.
    aws = EmbeddedAws(limits=Limits(subscription_seconds=SUBSCRIPTION_SECONDS))
    with background(aws), ThreadPoolExecutor(AT_ONCE) as pool:
        futures: dict[Scenario, Future[list[str]]] = {
            scenario: pool.submit(play, aws, number, scenario)
            for number, scenario in enumerate(wanted)
        }
        yield futures.__getitem__
        aborted.set()
        for future in futures.values():
            future.cancel()
