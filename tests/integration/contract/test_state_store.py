"""Test that every backend has the properties of a state store that we rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.testing.trial.acceptance.contract.races import RACE_CHECKS
from kinesumer.testing.trial.acceptance.contract.store import STORE_CHECKS, Stores
from tests.integration.contract.conftest import passes

if TYPE_CHECKING:
    from kinesumer.ports import StateStore
    from kinesumer.testing.trial.acceptance.check import Check

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

PART = "store"


@pytest.mark.parametrize(
    "check", [*STORE_CHECKS, *RACE_CHECKS], ids=lambda check: check.name
)
async def test_a_state_store_has_this_property(
    check: Check[[Stores]], store: StateStore, absent_store: StateStore, name: str
) -> None:
    await passes(check.run(Stores(store, absent_store, name)))
