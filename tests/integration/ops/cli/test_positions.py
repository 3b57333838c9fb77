"""Test ``import`` and ``export`` with position files and KCL lease tables."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support import lease_table
from tests.support.cli import Run, error_text, report
from tests.support.lease_table import LEASES, lease, put

ORDERS = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
S0, S1 = "shardId-000000000000", "shardId-000000000001"
HALF = 1 << 127
KCL = ("kcl", LEASES, "--stream=orders", "--look=0")


@pytest.fixture
def numbers(aws: EmbeddedAws) -> list[str]:
    """Create a table, two shards with a record each, and a KCL fleet's leases."""
    aws.create_table()
    aws.create_stream("orders", 2)
    found = [aws.put("orders", b"o", "k", explicit_hash_key=at)[1] for at in (0, HALF)]
    rows = [lease(S0, found[0]), lease(S1, found[1])]
    lease_table.create(aws, *rows)
    return found


@pytest.fixture
def imported(numbers: list[str], run: Run) -> None:
    """Give app a the positions of the KCL fleet."""
    assert run("import", *KCL, "--app=a", "--yes").exit_code == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a positions file in an otherwise empty folder."""
    return tmp_path / "positions.json"


def positions(run: Run, app: str, *options: str) -> Any:
    return report(run("export", "--app", app, *options))


def test_positions_move_from_a_kcl_fleet_to_an_app_to_a_file_to_another_app(
    numbers: list[str], run: Run, path: Path
) -> None:
    done = run("import", *KCL, "--app=a", "--yes")
    assert done.exit_code == 0, done.stderr
    assert f"  {S0}  {numbers[0]}\n" in done.stdout
    assert done.stdout.endswith("written and verified\n")
    assert run("export", "--app=a", "-o", str(path)).exit_code == 0
    assert run("import", str(path), "--app=b", "--yes").exit_code == 0
    one, other = positions(run, "a"), positions(run, "b", "--stream", "orders")
    assert one["streams"] == other["streams"]
    assert [shard["sequence_number"] for shard in one["streams"][0]["shards"]] == (
        numbers
    )
    assert (one["kind"], one["app"]) == ("kinesumer-positions", "a")


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_file_is_replaced_only_when_it_is_complete(
    imported: None, run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("before")
    path.chmod(0o640)
    with monkeypatch.context() as patched:
        patched.setattr("kinesumer.runtime.files.write_all", full_disk)
        result = run("export", "--app=a", "-o", str(path))
    assert (result.exit_code, path.read_text()) == (1, "before")
    assert f"can't write {path}: No space left" in result.stderr
    assert list(path.parent.iterdir()) == [path]
    assert run("export", "--app=a", "-o", str(path)).exit_code == 0
    assert json.loads(path.read_text())["app"] == "a"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_to_and_not_replaced(
    imported: None, run: Run, path: Path
) -> None:
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    assert run("export", "--app=a", "-o", str(path)).exit_code == 0
    assert json.loads(os.read(reader, 1_000_000))["app"] == "a"
    os.close(reader)
    assert path.is_fifo()


def test_an_import_shows_its_changes_and_moves_an_app_back(
    imported: None, numbers: list[str], run: Run, path: Path
) -> None:
    found = positions(run, "a")
    shards = found["streams"][0]["shards"]
    shards[0] |= {"sequence_number": None, "start": "AT_TIMESTAMP 1700000000.5"}
    path.write_text(json.dumps(found))
    shown = run("import", str(path), "--app=a", "--dry-run")
    assert f"  {S0}  {numbers[0]} → AT_TIMESTAMP 1700000000.5\n" in shown.stdout
    assert "1 to change, 1 to keep" in shown.stdout
    assert shown.stdout.endswith("dry run: nothing was written\n")
    assert positions(run, "a")["streams"][0]["shards"][0]["sequence_number"]
    changed = report(run("import", str(path), "--app=a", "--yes", "--json"))
    [stream] = changed.pop("streams")
    assert changed == {
        "version": 1,
        "app": "a",
        "table": "kinesumer-state-store",
        "source": str(path),
        "written": True,
        "problems": [],
    }
    assert stream["counts"] == {"change": 1, "keep": 1}
    before = {
        "ended": False,
        "waits_for_parents": False,
        "sequence_number": numbers[0],
        "sub_sequence_number": None,
        "start": "TRIM_HORIZON",
    }
    assert stream["shards"][0] == {
        "shard_id": S0,
        "action": "change",
        "before": before,
        "after": {
            **before,
            "sequence_number": None,
            "start": "AT_TIMESTAMP 1700000000.5",
        },
    }
    again = run("import", str(path), "--app=a")
    assert again.stdout.endswith("nothing to do: the app has these positions\n")


@pytest.mark.parametrize("command", ["import", "export"])
def test_the_help_has_the_options_of_the_default_command(
    run: Run, command: str
) -> None:
    told = run(command, "--help").output
    assert "FILE" in told and "--stream" in told
    assert "\n  kcl " in told


def test_an_import_needs_a_confirmation(numbers: list[str], run: Run) -> None:
    assert "pass --yes" in error_text(run("import", *KCL, "--app=a"), 2)


def test_positions_are_exported_to_the_fleets_leases(
    aws: EmbeddedAws, imported: None, numbers: list[str], run: Run
) -> None:
    aws.split("orders", S1)
    shown = run("export", *KCL, "--app=a", "--dry-run")
    assert "2 to keep, 2 to create" in shown.stdout
    assert len(lease_table.rows(aws)) == 2
    exported = report(run("export", *KCL, "--app=a", "--yes", "--json"))
    assert exported["lease_table"] == LEASES
    assert exported["streams"][0]["leases"][2] == {
        "lease_key": "shardId-000000000002",
        "action": "create",
        "before": None,
        "after": {"checkpoint": "TRIM_HORIZON", "sub": 0},
    }
    found = lease_table.rows(aws)
    assert len(found) == 4
    assert found[S0] == {
        **{k: v for k, v in lease(S0, numbers[0]).items() if k != "leaseOwner"},
        "leaseCounter": {"N": "8"},
    }
    assert found["shardId-000000000003"]["parentShardId"] == {"SS": [S1]}


def test_a_file_without_positions_is_refused(run: Run, path: Path) -> None:
    for content, text in (
        ("{}", "not a file of positions: Object missing required field `kind`"),
        ("not JSON", "not a file of positions: JSON is malformed"),
        ('{"kind": "kinesumer-positions", "version": 2}', "Invalid enum value 2"),
    ):
        path.write_text(content)
        assert text in error_text(run("import", str(path), "--app=a", "--yes"), 2)


def test_positions_of_a_recreated_stream_are_refused(
    imported: None, run: Run, path: Path
) -> None:
    found = positions(run, "a")
    found["streams"][0]["stream_created_at"] -= 60
    path.write_text(json.dumps(found))
    refused = run("import", str(path), "--app=b", "--yes")
    assert f"stream {ORDERS} was created again at" in error_text(refused, 1)
    refused = run("import", str(path), "--app=b", "--stream=clicks")
    assert "the positions do not name stream clicks" in error_text(refused)


def test_nothing_is_written_if_there_is_a_problem(
    aws: EmbeddedAws, numbers: list[str], run: Run
) -> None:
    put(aws, lease(S0, "AT_TIMESTAMP"), table=LEASES)
    refused = run("import", *KCL, "--app=a", "--yes")
    assert refused.exit_code == 1
    assert f"  ! {S0}: its lease is AT_TIMESTAMP" in refused.stdout
    assert "nothing was written" in error_text(refused)
    shown = report(run("import", *KCL, "--app=a", "--json"), status=1)
    assert (shown["written"], len(shown["problems"])) == (False, 1)
    done = run("import", *KCL, "--app=a", "--yes", "--start-at=2h")
    assert "written and verified" in done.stdout


def test_a_table_without_leases_is_refused(imported: None, run: Run) -> None:
    missing = run("import", "kcl", "nothing", "--app=a", "--stream=orders")
    assert "table nothing doesn't exist" in error_text(missing, 2)
    other = run("import", "kcl", "kinesumer-state-store", "--app=a", "--stream=orders")
    assert "isn't that of a lease" in error_text(other, 2)


def test_a_lease_table_is_read_page_by_page(
    aws: EmbeddedAws, numbers: list[str], run: Run
) -> None:
    for number in range(5):
        row = {
            "leaseKey": {"S": f"worker-{number}"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "sts": {"S": "x" * 390_000},
        }
        put(aws, row, table=LEASES)
    done = run("import", *KCL, "--app=a", "--dry-run")
    assert "2 to create" in done.stdout
