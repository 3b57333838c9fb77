"""Test which changes of files are noticed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kinesumer.ops.supervisor.source_files import changed, changes, scan


def write(path: Path, nanoseconds: int = 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(nanoseconds, nanoseconds))
    return path


def test_python_files_are_found_except_in_hidden_folders_and_environments(
    tmp_path: Path,
) -> None:
    found = {write(tmp_path / name) for name in ("app.py", "shop/orders.py")}
    for name in (
        "notes.txt",
        ".git/hook.py",
        "shop/__pycache__/orders.py",
        "node_modules/x.py",
        "env/lib/site.py",
    ):
        write(tmp_path / name)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert scan(tmp_path) == dict.fromkeys(found, 1)


def test_changed_new_and_deleted_files_are_changes(tmp_path: Path) -> None:
    one, two, three = (tmp_path / f"{name}.py" for name in ("one", "two", "three"))
    assert changed({one: 1, two: 1}, {one: 1, two: 2, three: 1}) == [three, two]
    assert changed({one: 1}, {}) == [one]
    assert changed({one: 1}, {one: 1}) == []


async def test_each_change_is_told_once(tmp_path: Path) -> None:
    app = write(tmp_path / "app.py")
    watching = changes(tmp_path)
    task = asyncio.ensure_future(anext(watching))
    number = 1
    while not task.done():
        number += 1
        write(app, number)
        await asyncio.sleep(0.05)
    assert task.result() == [app]
    await watching.aclose()
