"""Test producing from the lines of a file or a pipe."""

from __future__ import annotations

import os
from pathlib import Path

from kinesumer.ops.cli.produce import InputLines


async def test_the_last_line_may_lack_a_line_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo")
    portions = [portion async for portion in InputLines(str(file))]
    assert portions == [[b"one"], [b"two"]]


async def test_an_incomplete_line_is_dropped_when_stopped(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    os.write(end, b"one\ntw")
    lines = InputLines(str(pipe))
    assert await anext(lines) == [b"one"]
    lines.stop()
    assert [portion async for portion in lines] == []
    os.close(end)
