"""Test what commands print: the tables of reports, and the progress of a step."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args, get_origin

import msgspec
import pytest
from msgspec.structs import fields
from rich.cells import cell_len

from kinesumer.model.reports import Load
from kinesumer.model.rows import GroupRow, LeaderRow, ShardRow
from kinesumer.ops.cli import console
from kinesumer.ops.cli.console import Names, print_lines, progress
from kinesumer.ops.cli.tables import (
    lag_tables,
    show_distribution,
    status_picture,
    status_tables,
)
from kinesumer.ops.group.distribution import DistributionReport
from kinesumer.ops.group.lag import LagReport, Lags
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.status import GroupReport, report
from tests.support.doctor import ARN, member, row, snapshot
from tests.support.group_reports import SNAPSHOT, status
from tests.support.shares import stored_loads

# 128 letters is the longest name of a stream; ids of pods have up to 63 letters.
LONG_ARN = f"{ARN.rpartition('/')[0]}/{'orders-of-the-night-' * 6}europe-1"
LONG_IDS = [f"the-long-name-of-a-deployment-店舗-7f9c6d5b8-{end}" for end in "xyz"]


def test_the_tables_show_pauses_and_drains(capsys: Any) -> None:
    group = GroupRow("g", paused=True, pause_reason="night work")
    [stream] = SNAPSHOT.streams
    paused = [stream._replace(paused=True)]
    drained = [member("a", drained=True)]
    print_lines(status_tables(status(group=group, streams=paused, members=drained)))
    text = capsys.readouterr().out
    assert "all streams are paused: night work" in text
    assert "1 ended shards; paused" in " ".join(text.split())
    assert "drained" in text
    assert "orphaned, paused" in text


def test_the_tables_show_shards_owners_and_problems(capsys: Any) -> None:
    print_lines(status_tables(status()))
    text = capsys.readouterr().out
    assert "shardId-1" in text
    assert "unassigned → a" in text
    assert "! client b: its heartbeat has been unchanged" in text


def test_a_shard_whose_lag_is_that_of_commits_is_caught_up(capsys: Any) -> None:
    rows = [row(0), row(1)]
    late = Lags({rows[0].key: 4_600, rows[1].key: 61_000}, {})
    fleet = FleetView(snapshot(rows), {}, late)
    print_lines(status_tables(report("app", "table", fleet)))
    lines = capsys.readouterr().out.splitlines()
    [first, second] = [line.split() for line in lines if line.startswith("shardId-")]
    assert first[-2:] == ["caught", "up"]
    assert second[-3:] == ["61.0", "s", "behind"]
    assert any(
        "stream/orders" not in line and "61.0 s behind;" in line for line in lines
    )


def test_positions_are_shown_only_if_asked_for(capsys: Any) -> None:
    print_lines(status_tables(status()))
    assert "495:3" not in capsys.readouterr().out
    print_lines(status_tables(status(), verbose=True))
    assert "495:3" in capsys.readouterr().out


def by_load(names: list[str], rows: list[ShardRow], **fields: Any) -> Snapshot:
    """Return a group whose plan is by load, and whose clients report loads."""
    load = Load(1_200_000.0, 1_200.0, 0.123456)
    clients = [
        member(
            name,
            streams=frozenset({each.key.stream_arn}),
            load=stored_loads(
                {(each.key, each.first_hash): load},
                frozenset({each.key.stream_arn}),
            ),
            **fields,
        )
        for name, each in zip(names, rows, strict=True)
    ]
    leader = LeaderRow("session of a", "a", 1, 1, "load", 20_000, 1000.0)
    return snapshot(rows, clients, leader=leader, read_at=1030.0)


def test_a_plan_by_load_is_shown_with_loads_and_reasons(capsys: Any) -> None:
    found = by_load(["a", "b"], [row(0, "a"), row(1, "b")])
    print_lines(status_tables(report("app", "table", FleetView(found))))
    text = capsys.readouterr().out
    [first, *_] = [line for line in text.splitlines() if line.startswith("shardId-0")]
    assert first.split()[-3:] == ["1.28k", "1.28M", "0.124"]
    assert "plan by load, 30.0 s old" in text
    assert "  a is the busiest client, with 100 % of its share of the work" in text
    shares = [
        line.split() for line in text.splitlines() if line.split()[-1:] == ["1.00"]
    ]
    assert [words[0] for words in shares] == ["a", "b"]


def test_the_picture_has_problems_first_and_no_shards(capsys: Any) -> None:
    print_lines(status_picture(status(), "no answer; trying again"))
    text = capsys.readouterr().out
    _, trouble, *lines = text.splitlines()
    assert trouble == "! no answer; trying again"
    assert [line for line in lines if line.startswith("! ")][2] == (
        "! and 4 more problems: see kinesumer status"
    )
    assert "orders (000000000000, us-east-1): 1.5 s behind" in text
    assert "shardId-2" not in text


def test_a_distribution_by_load_shows_work_instead_of_fair_numbers(capsys: Any) -> None:
    show_long_distribution()
    text = capsys.readouterr().out
    assert "busiest shard" in text
    assert "fair" not in text
    assert "12.3%" in text
    assert "plan by load, 2 min old" in text


# The fields of reports, by name or by type, with values whose texts are long.
NAMED: dict[str, Any] = {
    "stream_arn": LONG_ARN,
    "shard_id": "shardId-000000000000",
    "sequence_number": "4" * 56,
    "millis_behind_latest": 5_900_000,
    "records_behind": 12_345_678,
    "retention_hours": 8760,
    "seconds_to_catch_up": 86_000.0,
    "caught_up": False,
    "records_exact": False,
    "state": "orphaned",
    "trend": "falling",
    "assignor": "load",
    "age_seconds": 123.4,
    "by": "label",
    "start": "TRIM_HORIZON",
    "bytes_per_second": 1e9,
    "share": 0.1234,
    "work_share": 0.1234,
    "load_share": 100.03,
    "states": {"orphaned": 1},
    "failures": None,
    "range": None,
    "paused": False,
}
TYPED: dict[Any, Any] = {str: LONG_IDS[1], int: 10_000, float: 1234.5, bool: True}


def full(kind: Any, name: str = "") -> Any:
    """Return a report, or a part of one, all fields of which have long values."""
    if name in NAMED:
        return NAMED[name]
    if get_origin(kind) is list:
        return [full(get_args(kind)[0])]
    kind = next(iter(get_args(kind)), kind)  # X of X | None
    if not issubclass(kind, msgspec.Struct):
        return TYPED[kind]
    return kind(**{one.name: full(one.type, one.name) for one in fields(kind)})


def show_long_distribution() -> None:
    show_distribution(f"app {LONG_IDS[2]}", full(DistributionReport))


@pytest.mark.parametrize(
    "show",
    [
        lambda: print_lines(status_tables(full(GroupReport))),
        lambda: print_lines(lag_tables(full(LagReport))),
        show_long_distribution,
    ],
)
def test_lines_fit_80_columns(
    capsys: Any, monkeypatch: pytest.MonkeyPatch, show: Callable[[], None]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    show()
    text = capsys.readouterr().out
    assert text
    assert [line for line in text.splitlines() if cell_len(line) > 80] == []
    # Names lose their middle, but not the ends, which tell ids apart.
    assert "…" in text
    assert f"{LONG_IDS[1][-3:]} " in text
    # Positions are shown only on request.
    assert "4" * 20 not in text


def test_a_wide_output_shows_whole_names(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show_long_distribution()
    assert LONG_IDS[1] in capsys.readouterr().out


def test_of_several_names_the_longest_is_shortened_first() -> None:
    names = Names(["unassigned", "billing-worker-7f9c6d5b8-x2x9k"])
    assert names.text(30) == "unassigned → billi…6d5b8-x2x9k"
    assert names.text(99) == " → ".join(names)


ERASE_LINE = "\x1b[2K"


class Terminal(io.StringIO):
    """Standard error on a terminal, which tells when it shows the second second."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        if "… 2 s" in text:
            self.shown.set()
        return super().write(text)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each step last for two seconds from its beginning on."""
    times = iter([0.0])
    clock = SimpleNamespace(monotonic=lambda: next(times, 2.0))
    monkeypatch.setattr(console, "time", clock)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


@pytest.mark.usefixtures("late")
def test_a_long_step_is_named_and_its_line_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="no such app"):
        with progress(lambda: "reading shards"):
            assert terminal.shown.wait(30)
            assert "reading shards … 2 s" in terminal.getvalue()
            print("not put: line 3", file=sys.stderr)
            raise ValueError("no such app")
    assert "not put: line 3\n" in terminal.getvalue()
    assert terminal.getvalue().rstrip().endswith(ERASE_LINE)


@pytest.mark.parametrize(("is_terminal", "kind"), [(False, "xterm"), (True, "dumb")])
@pytest.mark.usefixtures("late")
def test_nothing_is_shown_in_a_file_or_on_a_dumb_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, kind: str
) -> None:
    terminal = Terminal(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", kind)
    with progress("reading shards"):
        pass
    assert terminal.getvalue() == ""
