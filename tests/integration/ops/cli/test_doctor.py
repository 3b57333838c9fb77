"""Test ``kinesumer doctor`` and ``kinesumer verify`` against the embedded AWS."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinesumer.wire.decoder import decoder
from kinesumer.wire.rows import timestamp_text
from tests.integration.ops.cli.conftest import report
from tests.support.lease_table import put, scan

if TYPE_CHECKING:
    import pytest

    from kinesumer.testing import EmbeddedAws
    from tests.integration.ops.cli.conftest import Run

DOCUMENT = (Path(__file__).parents[4] / "docs" / "doctor.md").read_text()
EXAMINE = ["doctor", "--app=a", "--interval=1"]


def texts(found: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in found["findings"]]


def test_records_in_danger_give_exit_status_4(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.put("orders", b"unread", "customer 1")
    stopped_app.advance(20 * 3600)
    found = report(run(*EXAMINE, "--json"), status=4)
    assert found["worst"] == "critical"
    assert "no client is alive: no records are read" in texts(found)
    assert any("of its retention old" in text for text in texts(found))
    assert any("ahead of" in t or "behind AWS's" in t for t in texts(found))
    shown = run(*EXAMINE).output
    assert "CRITICAL" in shown
    assert "→ raise the stream's retention first" in shown


def test_a_missing_table_is_a_finding(aws: EmbeddedAws, run: Run) -> None:
    found = report(run(*EXAMINE, "--json"), status=4)
    assert found["app_examined"] is False
    [text] = texts(found)
    assert "kinesumer init" in text
    assert "not examined: app a" in run(*EXAMINE).output


def test_missing_credentials_are_a_finding(environment: None, run: Run) -> None:
    found = report(run(*EXAMINE, "--region=us-east-1", "--json"), status=4)
    assert found["caller"] is None
    assert found["findings"][0]["check"] == "credentials"


def test_an_unreachable_table_gives_exit_status_1(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "not examined: app a" in result.output
    assert run("doctor").exit_code == 1


def test_an_unreachable_sts_is_a_note(
    orders: EmbeddedAws, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    found = report(run("doctor", "--json"))
    assert found["worst"] == "note"
    assert "clocks" not in found["checks"]
    assert found["decoder"] == decoder()
    shown = run("doctor").output
    assert f"decoder: {decoder()}" in shown
    assert "as an unknown caller" in shown
    assert "without it, clocks aren't compared" in shown


def test_doctor_fails_for_an_unknown_app(orders: EmbeddedAws, run: Run) -> None:
    result = run(*EXAMINE)
    assert result.exit_code == 1
    assert "knows no app 'a'" in result.stderr


def test_an_app_is_examined_without_permission_to_write(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.deny("dynamodb:DeleteItem")
    found = json.loads(run(*EXAMINE, "--json").output)
    assert found["app_examined"] is True
    subjects = [finding["subject"] for finding in found["findings"]]
    assert "dynamodb:DeleteItem on table kinesumer-state-store" in subjects
    assert "app a" in subjects


def test_doctor_writes_nothing(orders: EmbeddedAws, run: Run) -> None:
    assert run("doctor").exit_code == 0
    assert scan(orders) == []


# --- verify ---------------------------------------------------------------------------


def verify(run: Run, status: int) -> Any:
    return report(run("verify", "--app=a", "--json"), status)


def verdicts(found: dict[str, Any]) -> list[str]:
    return sorted({shard["verdict"] for shard in found["streams"][0]["shards"]})


def rows(aws: EmbeddedAws) -> list[dict[str, Any]]:
    """Return the rows of shards with a position, in the order of their keys."""
    with_position = [row for row in scan(aws) if "sequence_number" in row]
    return sorted(with_position, key=lambda row: str(row["sk"]["S"]))


def store(aws: EmbeddedAws, row: dict[str, Any], **texts: str) -> None:
    put(aws, {**row, **{name: {"S": text} for name, text in texts.items()}})


def test_committed_positions_are_there(stopped_app: EmbeddedAws, run: Run) -> None:
    found = verify(run, 0)
    assert (found["worst"], verdicts(found)) == ("note", ["there"])
    assert "2 there" in run("verify", "--app=a").output
    stream = found["streams"][0]
    for name in {*found, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in DOCUMENT, name


def test_a_position_of_another_shard_is_refused(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    _, number = stopped_app.put("orders", b"x", None, explicit_hash_key=(1 << 128) - 1)
    store(stopped_app, rows(stopped_app)[0], sequence_number=number)
    found = verify(run, 4)
    assert verdicts(found) == ["refused", "there"]
    assert "seek to the position" in run("verify", "--app=a").output


def test_an_expired_position_whose_tip_shows_no_loss_is_quiet(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.advance(25 * 3600)
    at = timestamp_text(time.time() + 24.5 * 3600)
    for row in rows(stopped_app):
        store(stopped_app, row, tip=f"{at} {row['sequence_number']['S']}")
    for number in range(10):
        stopped_app.put("orders", b"%d" % number, f"customer {number}")
    assert verdicts(verify(run, 0)) == ["quiet"]


def test_an_expired_unread_shard_is_critical(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.split("orders", stopped_app.open_shards("orders")[0])
    stopped_app.advance(25 * 3600)
    found = verify(run, 4)
    assert "gone" in verdicts(found)
    [stream] = found["streams"]
    assert stream["contradictions"] == []  # its children wait


def test_a_recreated_stream_voids_positions(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.delete_stream("orders")
    stopped_app.advance(5)
    stopped_app.create_stream("orders", 2)
    found = verify(run, 4)
    assert "created again" in found["streams"][0]["problem"]
    assert "not compared" in run("verify", "--app=a").output


def test_an_unreadable_stream_is_a_warning(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.deny("kinesis:ListShards")
    found = verify(run, 3)
    assert "access denied: kinesis:ListShards" in found["streams"][0]["problem"]


def test_an_unreadable_row_is_critical(stopped_app: EmbeddedAws, run: Run) -> None:
    store(stopped_app, rows(stopped_app)[0], sequence_number="no number")
    found = verify(run, 4)
    assert len(found["problems"]) == 1
