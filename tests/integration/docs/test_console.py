"""Test that every command line on the pages is one that the programs accept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kinesumer import Config, Kinesumer, Start
from kinesumer.ops.cli.main import cli
from kinesumer.ops.cli.options import CommonOptions
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.support.doc_pages import ROOT, blocks, command_lines

# Programs that a page may use besides the ones of this repository. Every system has
# them, or the page installs them or is about them.
SYSTEM = {
    ".",
    "cat",
    "docker",
    "faststream",
    "grep",
    "pip",
    "prometheus",
    "python",
    "python3",
    "seq",
    "zensical",
}


def lines(page: str = "") -> Iterator[list[str]]:
    """Yield the command lines of all pages, or of one."""
    for block in blocks("console"):
        if page in ("", block.page):
            yield from command_lines(block.text)


def test_command_lines_are_found_without_their_comments_and_outputs() -> None:
    text = "$ A=b seq 3 | kinesumer produce a  # b\n3 lines\n$ kinesumer \\\n  init\n"
    assert list(command_lines(text)) == [
        ["seq", "3"],
        ["kinesumer", "produce", "a"],
        ["kinesumer", "init"],
    ]


def test_pages_use_only_programs_that_they_install() -> None:
    for program, *_ in lines():
        is_script = program.startswith("scripts/") and (ROOT / program).exists()
        assert is_script or program in SYSTEM or program == "kinesumer", program


def test_the_quickstart_uses_nothing_but_what_it_installs() -> None:
    used = {words[0] for words in lines("docs/quickstart.md")}
    assert used == {"python3", ".", "pip", "kinesumer"}


COMMANDS = sorted({tuple(words[1:]) for words in lines() if words[0] == "kinesumer"})


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_the_command_accepts_its_arguments(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arguments are parsed as usual. Only the command itself isn't run."""
    monkeypatch.chdir(tmp_path)
    Path("billing.json").touch()
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    cli.main(arguments, standalone_mode=False)


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.page)
def test_json_is_valid(block: tuple[str, str, str]) -> None:
    for line in [block[2]] if block[2].startswith("{\n") else block[2].splitlines():
        json.loads(line)


# --- commands that end by themselves --------------------------------------------------

# These commands need something that the test's group doesn't have.
NOT_RUN = {
    "acceptance": "takes minutes; test_acceptance.py runs it",
    "consume": "goes on until a signal; test_programs.py runs it",
    "dashboard": "goes on until a signal",
    "distribution": "shows another app, and the fleet of a KCL application",
    "doctor": "watches for ten seconds; test_doctor.py runs it",
    "dlq": "needs dead letters with the ids on the page",
    "export kcl": "needs a lease table of the KCL",
    "fan-out deregister": "needs a registered consumer",
    "import kcl": "needs a lease table of the KCL",
    "kcl cut-over": "needs an app in a KCL fleet; test_kcl.py runs it",
    "lag": "watches for ten seconds; test_status.py runs it",
    "local": "goes on until a signal; test_programs.py runs it",
    "run": "goes on until a signal; test_run.py runs it",
    "reset": "is refused while clients run",
    "tail": "goes on until a signal, or reads another account",
    "verify history": "needs histories; test_history.py runs it",
}
ENDLESS = {"--watch", "--generate"}
QUICK = Config(
    heartbeat_interval_seconds=0.1,
    lease_duration_seconds=5.0,
    leader_interval_seconds=0.1,
    rebalance_delay_seconds=0.1,
    commit_interval_seconds=0.1,
)


def ends(arguments: tuple[str, ...]) -> bool:
    """Return whether a command ends by itself, with the group of the fixture."""
    if arguments[0] == "metrics":
        return "--once" in arguments
    names = {arguments[0], " ".join(arguments[:2])}
    return not (names & NOT_RUN.keys() or ENDLESS & {*arguments})


async def consume_until(stop: threading.Event, ready: threading.Event) -> None:
    """Consume "orders" with three clients, until an event is set."""
    ids = ("c1", "c2", "billing-0")
    clients = [Kinesumer("billing", client_id=one, config=QUICK) for one in ids]

    async def consume(client: Kinesumer) -> None:
        async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
            pass

    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        tasks = [asyncio.create_task(consume(client)) for client in clients]
        while not all(client.assignment() for client in clients):
            await asyncio.sleep(0.05)
        ready.set()
        await asyncio.to_thread(stop.wait)
        for client in clients:
            await client.leave()
        await asyncio.gather(*tasks)


@pytest.fixture
def group(kinesumer_aws: EmbeddedAws) -> Iterator[None]:
    """Let three clients consume the stream "orders" on another thread."""
    kinesumer_aws.create_stream("orders", shards=4)
    for number in range(20):
        kinesumer_aws.put("orders", b"{}", f"key {number}")
    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(consume_until(stop, ready)))
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("group")
def test_commands_that_end_by_themselves_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CommonOptions, "confirm", lambda *_: None)
    Path("orders.txt").write_text('{"customer": "ann", "total": 5}\n')
    for arguments in filter(ends, COMMANDS):
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0, (arguments, result.output, result.stderr)
