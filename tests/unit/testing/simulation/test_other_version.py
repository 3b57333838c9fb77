"""Test how values and errors become those of another version, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinesumer.aws.kinesis_errors import SubscriptionInUseError
from kinesumer.config import Config
from kinesumer.errors import (
    AccessDeniedError,
    SourceThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.rows import Key
from kinesumer.model.streams import FanOutUse, ShardKey, Start, Stream
from kinesumer.ports import AllOf, AnyOf, Compare, Write
from kinesumer.testing.simulation.other_version import OtherVersion

ROOT = Path(__file__).parents[4]
CONDITION = AllOf(Compare("epoch", "=", 3), AnyOf(Compare("owner", "absent")))


@pytest.fixture(scope="module")
def same() -> OtherVersion:
    """Return the present code as another version."""
    return OtherVersion(ROOT)


@pytest.mark.parametrize(
    "value",
    [
        Write(Key("pk", "sk"), CONDITION, {"epoch": 4}, remove=("owner",)),
        Page([Record("1", b"data", "key", 1.5)], "next", 7, (), 20),
        Stream("orders", min_read_interval_seconds=0.5),
        Start(type="AT_TIMESTAMP", timestamp=1.5),
        Config(assignor="load", max_shards=3),
        {"a": [Position("1", 2)], "b": frozenset({ShardKey("arn", "shard")})},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_survives_the_way_there_and_back(
    same: OtherVersion, value: Any
) -> None:
    assert same.here(same.there(value)) == value


def test_a_value_becomes_one_of_the_other_versions_class(same: OtherVersion) -> None:
    there = same.there(Write(Key("pk", "sk"), CONDITION))

    assert type(there).__module__.endswith(".ports")
    assert type(there) is not Write
    assert type(there.condition.parts[0]) is not Compare


def test_objects_that_are_no_values_stay_the_same(same: OtherVersion) -> None:
    async def handle(record: Record) -> None:
        raise AssertionError(record)

    assert same.there(handle) is handle
    assert same.there({"handler": handle}) == {"handler": handle}


def test_an_error_becomes_the_error_of_the_same_name(same: OtherVersion) -> None:
    error = StoreUnavailableError("timed out")
    error.lacks_credentials = True
    there = same.there(error)

    assert not isinstance(there, StoreUnavailableError)
    assert type(there).__name__ == "StoreUnavailableError"
    assert str(there) == "timed out"
    assert there.lacks_credentials is True
    denied = same.here(same.there(AccessDeniedError("kinesis:Read", "arn", "no")))
    assert isinstance(denied, AccessDeniedError)
    assert denied.action == "kinesis:Read"


def test_an_error_that_only_one_version_knows_becomes_its_base(
    same: OtherVersion,
) -> None:
    there = same.there(SubscriptionInUseError("replaced"))

    assert isinstance(same.here(there), SourceThrottledError)


def test_other_errors_pass_as_they_are(same: OtherVersion) -> None:
    with pytest.raises(ZeroDivisionError), same.there.errors():
        raise ZeroDivisionError


def written(folder: Path, **modules: str) -> OtherVersion:
    """Return a version of so much code."""
    code = {"client": "", "coordination/connections": "", **modules}
    for name, text in code.items():
        file = folder / "kinesumer" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(text)
    return OtherVersion(folder)


def test_a_class_is_found_in_whatever_module_a_version_has_it(tmp_path: Path) -> None:
    client = "from kinesumer.model.consumers import FanOutUse"
    consumers = (
        "from typing import NamedTuple\n"
        "class FanOutUse(NamedTuple):\n"
        "    consumer: str\n"
        "    since: int = 5\n"
    )
    version = written(tmp_path, client=client, **{"model/consumers": consumers})

    # A field that the version lacks is left out; its own have their defaults.
    assert version.there(FanOutUse("billing", "no room")) == ("billing", 5)
    assert version.here(version.there(FanOutUse("billing"))) == ("billing", "")


def test_a_value_without_a_counterpart_is_an_error(tmp_path: Path) -> None:
    version = written(tmp_path)

    with pytest.raises(LookupError, match=r"has no class like .*FanOutUse"):
        version.there(FanOutUse("billing"))


def test_a_version_whose_clients_have_no_ports_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "kinesumer"
    package.mkdir()
    for name in ("__init__.py", "client.py"):
        (package / name).touch()

    with pytest.raises(ValueError, match="too old for the simulator"):
        OtherVersion(tmp_path)
