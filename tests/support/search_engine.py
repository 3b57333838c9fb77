"""A stand-in for OpenSearch and Elasticsearch, with the two requests of the recipe.

It follows their reference of ``_mget`` and ``_bulk``: documents have sequence numbers,
and a write with a condition is refused if another one came before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

PRIMARY_TERM = 1


class Stored(NamedTuple):
    """A document, and the sequence number of the write that stored it."""

    seq_no: int
    source: dict[str, Any]


class SearchEngine:
    """The index "orders", in memory."""

    def __init__(self) -> None:
        self.url = ""
        # All writes that were accepted, in order.
        self.writes: list[tuple[str, dict[str, Any]]] = []
        # Called once, before the next write: what another process does meanwhile.
        self.meanwhile: Callable[[], object] | None = None
        # The ids of documents that don't fit the index's mapping.
        self.refused: set[str] = set()
        # How many documents are rejected from now on, because the engine is busy.
        self.busy = 0
        self._stored: dict[str, Stored] = {}
        self._lock = Lock()

    def index(self, id: str, source: dict[str, Any]) -> None:
        """Index a document without a condition."""
        self._stored[id] = Stored(len(self.writes), source)
        self.writes.append((id, source))

    def documents(self) -> dict[str, dict[str, Any]]:
        """Return all documents by their ids."""
        with self._lock:
            return {id: stored.source for id, stored in self._stored.items()}

    def answer(self, path: str, body: bytes) -> Any:
        """Return the answer to a request."""
        with self._lock:
            if path == "/orders/_mget":
                return {"docs": [self._get(id) for id in json.loads(body)["ids"]]}
            assert path == "/orders/_bulk" and body.endswith(b"\n")
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            lines = [json.loads(line) for line in body.splitlines()]
            pairs = zip(lines[::2], lines[1::2], strict=True)
            return {"items": [self._write(action, source) for action, source in pairs]}

    def _get(self, id: str) -> dict[str, Any]:
        stored = self._stored.get(id)
        if stored is None:
            return {"_id": id, "found": False}
        return {
            "_id": id,
            "found": True,
            "_seq_no": stored.seq_no,
            "_primary_term": PRIMARY_TERM,
            "_source": stored.source,
        }

    def _write(self, action: dict[str, Any], source: dict[str, Any]) -> Any:
        [(kind, options)] = action.items()
        id = options.pop("_id")
        stored = self._stored.get(id)
        if kind == "create":
            assert options == {}
            is_as_found = stored is None
        else:
            assert kind == "index" and options.pop("if_primary_term") == PRIMARY_TERM
            wanted = options.pop("if_seq_no")
            assert options == {}
            is_as_found = stored is not None and stored.seq_no == wanted
        if self.busy > 0:
            self.busy -= 1
            return _item(kind, id, 429, "es_rejected_execution_exception")
        if id in self.refused:
            return _item(kind, id, 400, "mapper_parsing_exception")
        if not is_as_found:
            return _item(kind, id, 409, "version_conflict_engine_exception")
        self.index(id, source)
        return _item(kind, id, 201 if stored is None else 200)


def _item(kind: str, id: str, status: int, error: str | None = None) -> Any:
    found: dict[str, Any] = {"_id": id, "status": status}
    return {kind: found if error is None else found | {"error": {"type": error}}}


@contextmanager
def serve_search() -> Iterator[SearchEngine]:
    """Serve an empty index on a free port for the block."""
    engine = SearchEngine()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            data = json.dumps(engine.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        engine.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield engine
        finally:
            server.shutdown()
            thread.join()
