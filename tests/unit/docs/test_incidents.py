"""Test that the page about troubles has exactly the kinds of incidents that exist."""

from __future__ import annotations

import re
from pathlib import Path

from kinesumer.model.incidents import IncidentKind

PAGE = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()


def test_the_table_of_incidents_has_each_kind_with_its_meaning_and_remedy() -> None:
    block = PAGE.partition("<!-- incidents -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+) \| (.+) \|$", block, re.M)
    assert rows == [(kind.value, kind.meaning, kind.remedy) for kind in IncidentKind]
