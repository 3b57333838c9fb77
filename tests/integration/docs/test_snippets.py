"""The examples of the README and of the guides run as they are printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import kinesumer
from kinesumer import Config, Kinesumer, Record, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesumer.local import EmbeddedAws

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(?: \{ \.)?(\w+).*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = "kinesumer-state-store"
OTHER = "210987654321"
PATIENCE_SECONDS = 60


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page that are printed there, and not included."""
    found = [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]
    return [text for text in found if "--8<--" not in text]


def snippet(page: str, part: str) -> str:
    """Return the only Python block of a page that contains some text."""
    [found] = [text for text in blocks(ROOT / page, "python") if part in text]
    return found


SNIPPETS = [
    pytest.param(text, id=f"{page.stem}:{number}")
    for page in PAGES
    for number, text in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_a_snippet_imports_what_it_names_of_kinesumer(text: str) -> None:
    tree = compile(
        text, "snippet", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    public = {*kinesumer.__all__, "kinesumer", "DeadLetter", "open_dead_letters"}
    assert used & public <= imported


# --- parts of programs ---


class Until:
    """User code of a snippet: takes anything, and says when it has enough."""

    def __init__(self, count: int = 1) -> None:
        self.seen: list[Any] = []
        self.enough = asyncio.Event()
        self._count = count

    async def __call__(self, item: Any) -> None:
        self.seen.append(item)
        if len(self.seen) >= self._count:
            self.enough.set()


async def play(text: str, names: dict[str, Any], enough: asyncio.Event) -> None:
    """Run a snippet that goes on until it has done enough."""
    task = asyncio.ensure_future(evaluated(text, names))
    waiting = asyncio.ensure_future(enough.wait())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        task.cancel()
    waiting.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    if not task.cancelled():
        task.result()


async def evaluated(text: str, names: dict[str, Any]) -> None:
    """Run a snippet to its end."""
    code = compile(text, "snippet", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    found = eval(code, names)
    if inspect.isawaitable(found):
        await found


@pytest.fixture
def aws(
    kinesumer_aws: EmbeddedAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EmbeddedAws:
    """A stream orders with a record for each of three keys; files go elsewhere."""
    monkeypatch.chdir(tmp_path)
    kinesumer_aws.create_stream("orders", shards=2)
    for number in range(3):
        kinesumer_aws.put("orders", b'{"total": %d}' % number, f"key {number}")
    return kinesumer_aws


@pytest.fixture(autouse=True)
def from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets without a start get the records that are there already."""
    for name in ("consume", "run"):
        call = inspect.unwrap(getattr(Kinesumer, name))
        defaults = {**call.__kwdefaults__, "start": Start.TRIM_HORIZON}
        monkeypatch.setattr(call, "__kwdefaults__", defaults)


def client(**options: Any) -> Kinesumer:
    return Kinesumer(app="billing", table=TABLE, config=Config(**options))


def other_account(aws: EmbeddedAws, external_id: str | None = None) -> None:
    """A stream payments in another account, and the role that reads it."""
    arn = aws.create_stream("payments", account=OTHER, region="eu-west-1")
    aws.put(arn, b"{}", "key")
    aws.create_role("reader", account=OTHER, external_id=external_id)


@pytest.mark.parametrize(
    ("page", "external_id"),
    [("README.md", None), ("docs/cross-account.md", "agreed-upon")],
)
async def test_streams_of_two_accounts(
    aws: EmbeddedAws, page: str, external_id: str | None
) -> None:
    other_account(aws, external_id)
    handle = Until(4)
    text = snippet(page, 'role_arn="arn:').replace(
        "    ...\n", "    await handle(record)\n"
    )
    await play(text, {"handle": handle}, handle.enough)
    assert {record.stream for record in handle.seen} == {"orders", "payments"}


async def test_the_first_page(aws: EmbeddedAws) -> None:
    aws.create_stream("payments")
    handle = Until(3)
    text = snippet("docs/index.md", "client.consume(")
    await play(text, {"handle": handle}, handle.enough)


CALLS = [
    ("README.md", "client.run("),
    ("docs/quickstart.md", "client.run("),
    ("docs/quickstart.md", ".batches()"),
    ("docs/handlers.md", "headers.traceparent"),
]


@pytest.mark.parametrize(("page", "part"), CALLS)
async def test_what_is_done_with_a_client(
    aws: EmbeddedAws, page: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = Until()

    async def handle(record: Record) -> None:
        await taken(record)

    async with client() as of_the_program:
        names = {
            "client": of_the_program,
            "handle": handle,
            "streams": ["orders"],
            "write_to_database": taken,
            "read_header": lambda data: None,
        }
        await play(snippet(page, part), names, taken.enough)
    assert taken.seen


async def test_several_tasks_that_ask(aws: EmbeddedAws) -> None:
    taken = Until()
    async with client(commit="manual") as of_the_program:
        names = {
            "asyncio": asyncio,
            "client": of_the_program,
            "write_to_database": taken,
        }
        await play(snippet("docs/handlers.md", "TaskGroup"), names, taken.enough)
    assert taken.seen


async def test_a_handler_of_records(aws: EmbeddedAws) -> None:
    charge = Until(3)
    text = snippet("docs/handlers.md", "await charge(")
    await play(text, {"charge": charge}, charge.enough)


async def test_hooks(aws: EmbeddedAws) -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/handlers.md", "class Timing"), names)
    handled = Until(3)

    async def handle(record: Record) -> None:
        await handled(record)

    async with client() as of_the_program:
        running = of_the_program.run("orders", handle, middleware=[names["Timing"]()])
        task = asyncio.ensure_future(running)
        await handled.enough.wait()
        await of_the_program.leave()
        await task


async def test_marks_by_hand(aws: EmbeddedAws) -> None:
    taken = Until(3)
    names: dict[str, Any] = {"queue": SimpleNamespace(put=taken)}
    text = snippet("docs/quickstart.md", "queue.put")
    task = asyncio.ensure_future(play(text, names, asyncio.Event()))
    await asyncio.wait_for(taken.enough.wait(), PATIENCE_SECONDS)
    marks = snippet("docs/quickstart.md", "client.ack")
    for record in taken.seen:
        await evaluated(marks, {"client": names["client"], "record": record})
    await names["client"].leave()
    await task


def stored_letters() -> str:
    path = Path("dead.jsonl")
    return path.read_text() if path.exists() else ""


async def test_dead_letters_where_one_iterates(aws: EmbeddedAws) -> None:
    seen = Until(4)

    async def charge(data: bytes) -> None:
        await seen(data)
        if data == b'{"total": 1}':
            raise ValueError("no")

    names: dict[str, Any] = {"charge": charge}
    await evaluated(snippet("docs/dead-letters.md", "open_dead_letters"), names)
    async with client() as of_the_program:
        task = asyncio.ensure_future(names["consume"](of_the_program))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (stored_letters() and len(seen.seen) >= 3):
                await asyncio.sleep(0.05)
        await of_the_program.leave()
        await task
    assert "ValueError: no" in stored_letters()


async def test_pauses_other_streams_and_the_end(aws: EmbeddedAws) -> None:
    aws.create_stream("payments")
    aws.create_stream("refunds")
    async with client() as of_the_program:
        names: dict[str, Any] = {"client": of_the_program}
        records = of_the_program.consume("orders")
        await anext(records)
        await evaluated(snippet("docs/control.md", "client.pause"), names)
        await evaluated(snippet("docs/quickstart.md", "refresh"), names)
        await evaluated(snippet("docs/quickstart.md", "SIGTERM"), names)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _ in records:
                pass
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        assert len(names["leaving"]) == 1


TESTS = [
    ("docs/testing.md", "test_orders_are_counted"),
    ("docs/cross-account.md", "test_reads_through_a_role"),
]


@pytest.mark.parametrize(("page", "name"), TESTS)
async def test_tests(kinesumer_aws: EmbeddedAws, page: str, name: str) -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet(page, name), names)
    test: Callable[[EmbeddedAws], Awaitable[None]] = names[name]
    await asyncio.wait_for(test(kinesumer_aws), PATIENCE_SECONDS)


async def test_faults(aws: EmbeddedAws) -> None:
    await evaluated(snippet("docs/testing.md", "outage("), {"kinesumer_aws": aws})


# --- whole programs ---


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended after the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def first_lines(process: subprocess.Popen[str], count: int) -> list[str]:
    """Return the first lines that a process prints."""
    timer = threading.Timer(PATIENCE_SECONDS, process.kill)
    timer.start()
    assert process.stdout is not None
    found = [process.stdout.readline() for _ in range(count)]
    timer.cancel()
    assert all(found), process.communicate()
    return found


@pytest.mark.parametrize("part", ["asyncio.run(main())", "import kinesumer.blocking"])
def test_programs(
    aws: EmbeddedAws, part: str, processes: list[subprocess.Popen[str]]
) -> None:
    command = [sys.executable, "-c", snippet("docs/quickstart.md", part)]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    processes.append(process)
    assert all("shardId-" in line for line in first_lines(process, 3))


def test_the_quickstart_without_aws(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    """What is pasted into terminals works, with nothing but the package."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    section = page.partition("## Without AWS")[2].partition("\n## ")[0]
    serve, *others = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    (tmp_path / "kinesumer").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m kinesumer.cli "$@"\n'
    )
    (tmp_path / "kinesumer").chmod(0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "KINESUMER_"))
    }
    environment |= {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }

    def start(command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            f"exec {command}" if "|" not in command else command,
            shell=True,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    local = start(serve.replace("--port 4567", "--port 0"))
    for line in first_lines(local, 6):
        name, _, value = line.removeprefix("export ").strip().partition("=")
        environment[name] = value
    *until_done, consume = others
    for command in until_done:
        done = start(command)
        _, said = done.communicate(timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, said
    found = first_lines(start(consume), 1000)
    assert len(set(found)) == 1000


def test_the_readme_and_the_quickstart_say_how_to_install_from_source() -> None:
    """Nothing says to install by name what isn't on PyPI."""
    for name in ("README.md", "docs/quickstart.md"):
        page = (ROOT / name).read_text()
        assert "pip install ." in page
        assert "from a checkout" in " ".join(page.split())
        assert "pip install kinesumer" not in page
