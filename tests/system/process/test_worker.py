"""Test that a fleet's client process writes the end of a session to its journal."""

from __future__ import annotations

import logging

import pytest

from tests.system.process.worker import Sessions


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def tell(sessions: Sessions, text: str, session: str) -> None:
    record = logging.makeLogRecord({"msg": text, "args": ("client-1", session)})
    record.session = session
    sessions.emit(record)


def test_the_latest_registered_session_is_remembered(sessions: Sessions) -> None:
    tell(sessions, "registered as %s, session %s", "first")
    assert sessions.latest == "first"


def test_a_session_that_died_before_the_client_left_released_nothing(
    sessions: Sessions,
) -> None:
    tell(sessions, "registered as %s, session %s", "first")
    tell(sessions, "session of %s, %s, is dead; registering a new one", "first")
    assert not sessions.latest
