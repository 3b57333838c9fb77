"""Test that the wheel contains the page's files."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from kinesumer.ops.dashboard.server import page_files

ROOT = Path(__file__).parents[4]


def test_the_wheel_has_every_file_of_the_page() -> None:
    builder = WheelBuilder(str(ROOT))
    found = {file.distribution_path for file in builder.recurse_included_files()}
    wanted = {f"kinesumer/ops/dashboard/static/{name}" for name in page_files()}
    assert wanted <= found
    assert len(wanted) > 10
