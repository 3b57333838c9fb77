"""Handlers that ``run()`` calls: their records are done, given up or handed over.

None is simulated: the scenarios that the simulator draws by default iterate.
"""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, move, replace

RULE = "9 the checkpoint passes nothing that isn't done; K1"
buffer = Module("consuming.prefetch", "tests/unit/handlers/test_run.py")
calls = Module("handlers.invokers", "tests/unit/handlers/test_run.py")
queue = Module("handlers.shard_queue", "tests/unit/handlers/test_by_key.py")
queues = Module("handlers.queues", "tests/unit/handlers/test_by_key.py")
watermark = Module("handlers.watermark", "tests/unit/handlers/test_watermark.py")
worker = Module("handlers.executor", "tests/unit/handlers/test_failing.py")

MUTANTS = (
    calls(
        "a record is done when its handler begins",
        RULE,
        "EachRecord.__call__",
        move("item.done += 1", before="await handler(record)"),
        "tests/unit/handlers/test_failing.py",
        "tests/unit/handlers/test_run.py",
        simulated=False,
    ),
    watermark(
        "what is done behind a gap counts as done",
        RULE,
        "Watermark.mark",
        replace("self.value in self._ahead", "self._ahead")
        + replace(
            "self._ahead.remove(self.value)", "self.value = min(self._ahead); ..."
        ),
        simulated=False,
    ),
    worker(
        "a record counts as handled before its letter is stored",
        RULE,
        "HandlerExecutor._resolve",
        replace(
            "await self._failure_policy(item, last); item.done += 1",
            "item.done += 1; item.reported -= 1; "
            "await self._failure_policy(item, last)",
        ),
        simulated=False,
    ),
    queues(
        "a key is handled by two at a time",
        "order per key",
        "KeyedQueue._open",
        replace("busy.get(key)", "None"),
        simulated=False,
    ),
    queue(
        "a shard given up waits for its next try",
        "7 a hand-over waits for what is in user code only",
        "ShardQueue.end",
        drop("self._over.set()"),
        "tests/unit/handlers/test_failing.py",
        simulated=False,
    ),
    calls(
        "a shard given up is handed out further",
        "7 nothing is handed out once it is revoked",
        "EachRecord.__call__",
        drop("queue.is_over"),
        simulated=False,
    ),
    calls(
        "a lapsed lease doesn't pause handlers",
        "4 nothing is handed out without a permit",
        "EachRecord.__call__",
        drop("moment >= lease.deadline"),
        simulated=False,
    ),
    queue(
        "user code that is through isn't told to a hand-over",
        "7 waits for what is in user code",
        "ShardQueue.finish",
        drop("if self.is_over and not self.items: ..."),
        simulated=False,
    ),
    worker(
        "a batch that fails is given up whole",
        "that record alone goes to a dead letter",
        "HandlerExecutor._resolve",
        replace("stop - item.done > 1", "stop - item.done > 99"),
        simulated=False,
    ),
    queue(
        "memory of handled records isn't given back",
        "9 memory is bounded; K16",
        "ShardQueue.finish",
        drop("self._buffer.give_back(self.owned, item.size)"),
        simulated=False,
    ),
    buffer(
        "slow shards take the whole buffer",
        "9 one slow shard holds up no other; Go 29",
        "PrefetchBuffer._takes_too_much",
        replace("has_some", "False"),
        simulated=False,
    ),
)
