"""Test that the configuration refuses values that can't work."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kinesumer.config import Config
from kinesumer.errors import ConfigurationError


def test_the_defaults_are_those_of_the_protocol() -> None:
    assert Config() == Config(
        heartbeat_interval_seconds=2.0,
        lease_duration_seconds=8.0,
        leader_interval_seconds=1.0,
        commit="auto",
        assignor="range",
        buffer_bytes=64 * 1024 * 1024,
    )


def test_a_lease_shorter_than_three_heartbeats_is_refused() -> None:
    Config(heartbeat_interval_seconds=2, lease_duration_seconds=6)
    with pytest.raises(
        ConfigurationError, match=r"lease_duration_seconds=5\.9 is less than"
    ):
        Config(heartbeat_interval_seconds=2, lease_duration_seconds=5.9)


@pytest.mark.parametrize("pages", [1, 10_000])
def test_records_per_read_have_the_limit_of_aws(pages: int) -> None:
    assert Config(max_records_per_read=pages).max_records_per_read == pages
    with pytest.raises(ConfigurationError, match="max_records_per_read"):
        Config(max_records_per_read=10_001)


@pytest.mark.parametrize(("name", "value"), [("commit", "never"), ("assignor", "fair")])
def test_an_unknown_choice_is_refused_and_the_choices_are_named(
    name: str, value: Any
) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}='{value}' must be one of"):
        Config(**{name: value})


def test_the_removed_assignor_is_refused_and_another_one_is_named() -> None:
    with pytest.raises(ConfigurationError, match="load also moves few shards"):
        Config(assignor="sticky")  # type: ignore[arg-type]


def test_a_configuration_never_changes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().weight = 2  # type: ignore[misc]
