"""``kinesumer verify`` against the embedded AWS."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinesumer.wire.rows import timestamp_text
from kinesumer.wire.table_definition import STATE_STORE

if TYPE_CHECKING:
    from kinesumer.local import EmbeddedAws
    from tests.integration.cli.conftest import Run


def told(run: Run, status: int) -> dict[str, Any]:
    result = run("verify", "--app=a", "--json")
    assert result.exit_code == status, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def verdicts(answer: dict[str, Any]) -> list[str]:
    return sorted({shard["verdict"] for shard in answer["streams"][0]["shards"]})


def change(aws: EmbeddedAws, text: str) -> None:
    """Set the position in the first shard's row."""
    scanned = aws.dynamodb("Scan", json.dumps({"TableName": STATE_STORE}).encode())
    row = min(
        (r for r in scanned["Items"] if r["pk"]["S"].startswith("shard#")),
        key=lambda row: str(row["sk"]["S"]),
    )
    row["sequence_number"] = {"S": text}
    request = {"TableName": STATE_STORE, "Item": row}
    aws.dynamodb("PutItem", json.dumps(request).encode())


def note_tips(aws: EmbeddedAws, at: str) -> None:
    """Store in each shard's row that no record followed its position until a time."""
    scanned = aws.dynamodb("Scan", json.dumps({"TableName": STATE_STORE}).encode())
    for row in scanned["Items"]:
        if "sequence_number" in row:
            row["tip"] = {"S": f"{at} {row['sequence_number']['S']}"}
            request = {"TableName": STATE_STORE, "Item": row}
            aws.dynamodb("PutItem", json.dumps(request).encode())


def test_committed_positions_are_there(stopped_app: EmbeddedAws, run: Run) -> None:
    answer = told(run, 0)
    assert (answer["worst"], verdicts(answer)) == ("note", ["there"])
    assert "2 there" in run("verify", "--app=a").output
    document = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    stream = answer["streams"][0]
    for name in {*answer, *stream, *stream["shards"][0]}:
        assert f"`{name}`" in document, name


def test_a_position_of_another_shard_is_refused(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    _, number = stopped_app.put("orders", b"x", None, explicit_hash_key=(1 << 128) - 1)
    change(stopped_app, number)
    answer = told(run, 4)
    assert verdicts(answer) == ["refused", "there"]
    assert "seek to the position" in run("verify", "--app=a").output


def test_a_position_behind_retention_is_expired(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.advance(25 * 3600)
    assert verdicts(told(run, 0)) == ["quiet"]
    for number in range(10):
        stopped_app.put("orders", b"%d" % number, f"customer {number}")
    answer = told(run, 3)
    assert verdicts(answer) == ["expired"]


def test_an_expired_position_whose_tip_shows_no_loss_is_quiet(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.advance(25 * 3600)
    note_tips(stopped_app, timestamp_text(time.time() + 24.5 * 3600))
    for number in range(10):
        stopped_app.put("orders", b"%d" % number, f"customer {number}")
    assert verdicts(told(run, 0)) == ["quiet"]


def test_an_expired_unread_shard_is_critical(
    stopped_app: EmbeddedAws, run: Run
) -> None:
    stopped_app.split("orders", stopped_app.open_shards("orders")[0])
    stopped_app.advance(25 * 3600)
    answer = told(run, 4)
    assert "gone" in verdicts(answer)
    [stream] = answer["streams"]
    assert stream["contradictions"] == []  # its children wait until it is given up


def test_a_recreated_stream_voids_positions(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.delete_stream("orders")
    stopped_app.advance(5)
    stopped_app.create_stream("orders", 2)
    answer = told(run, 4)
    assert "created again" in answer["streams"][0]["problem"]
    assert "not compared" in run("verify", "--app=a").output


def test_an_unreadable_stream_is_a_warning(stopped_app: EmbeddedAws, run: Run) -> None:
    stopped_app.deny("kinesis:ListShards")
    answer = told(run, 3)
    assert "access denied: kinesis:ListShards" in answer["streams"][0]["problem"]


def test_an_unreadable_row_is_critical(stopped_app: EmbeddedAws, run: Run) -> None:
    change(stopped_app, "no number")
    answer = told(run, 4)
    assert len(answer["problems"]) == 1
