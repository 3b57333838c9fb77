"""Test that Prometheus itself answers the panels' queries, where it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kinesumer.testing import EmbeddedAws
from tests.support.cli import Starter
from tests.support.clock import wait_until
from tests.support.ports import free_port
from tests.support.promql import DASHBOARD, panel_queries, shows_problems

PROMETHEUS = shutil.which("prometheus")
SETTINGS = DASHBOARD.parent / "prometheus.yaml"
APP = """
from kinesumer import App, Record

app = App("billing", streams=["orders"], start="TRIM_HORIZON")


@app.handler("orders")
async def on_order(record: Record) -> None:
    pass
"""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is not installed here"),
]


def ask(port: int, path: str, **parameters: str) -> Any:
    query = urllib.parse.urlencode(parameters)
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{query}"
    try:
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]
    except OSError:  # it does not listen yet
        return None


def test_prometheus_has_data_for_each_panel_and_evaluates_each_alert(
    aws: EmbeddedAws, start: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.create_table()
    aws.create_stream("orders", 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(APP)
    own, of_processes, of_group = free_port(), free_port(), free_port()
    start("run", "app:app", "--processes=2", f"--metrics-port={of_processes}")
    start("metrics", "--app=billing", f"--listen=127.0.0.1:{of_group}", "--every=1")
    settings = SETTINGS.read_text().replace("15s", "1s\n  evaluation_interval: 1s")
    settings = settings.replace("[alerts.yaml]", f"[{SETTINGS.parent}/alerts.yaml]")
    settings = settings.replace("9464", str(of_processes)).replace(
        "9466", str(of_group)
    )
    (tmp_path / "prometheus.yaml").write_text(settings)
    command = [
        str(PROMETHEUS),
        "--config.file=prometheus.yaml",
        f"--web.listen-address=127.0.0.1:{own}",
        "--storage.tsdb.path=data",
    ]
    awaited = [query for query in panel_queries() if not shows_problems(query)]

    def all_have_data() -> bool:
        aws.put("orders", b"an order", "key")
        found = [ask(own, "query", query=query) for query in awaited]
        return all(each and each["result"] for each in found)

    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as prometheus:
        try:
            wait_until(all_have_data, "each panel has data")
            for query in panel_queries():
                assert ask(own, "query", query=query)["resultType"] == "vector"
            wait_until(
                lambda: (
                    {
                        (rule["health"], rule["state"])
                        for group in ask(own, "rules")["groups"]
                        for rule in group["rules"]
                    }
                    == {("ok", "inactive")}
                ),
                "each alert is evaluated, and none fires",
            )
        finally:
            prometheus.terminate()
