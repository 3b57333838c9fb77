"""Test that the documentation has the table of options."""

from __future__ import annotations

from pathlib import Path

from kinesumer.spark.options.parser import FOREIGN_OPTIONS
from kinesumer.spark.options.table import OPTIONS


def test_the_documentation_has_each_option_with_its_default() -> None:
    documentation = Path(__file__, "../../../../docs/spark.md").resolve().read_text()
    for option in OPTIONS:
        uses = ", ".join(f"`{use}`" for use in option.uses)
        row = f"\n| `{option.name}` | {uses} | {option.default} | "
        assert row in documentation, "put this row into docs/spark.md"
    aliases = [alias for option in OPTIONS for alias in option.aliases]
    for name in (*FOREIGN_OPTIONS, *aliases):
        assert f"`{name}`" in documentation, "name its counterpart in docs/spark.md"
