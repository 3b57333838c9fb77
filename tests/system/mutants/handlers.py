"""Handlers that ``run()`` calls: their records are done, given up or handed over.

None is simulated: the scenarios that the simulator draws by default iterate.
"""

from __future__ import annotations

from tests.system.mutants.mutant import Module
from tests.system.mutants.operators import drop, move, replace

RULE = "9 the checkpoint passes nothing that isn't done; K1"
buffer = Module("consuming.prefetch", "tests/unit/handlers/test_run.py")
calls = Module("handlers.invokers", "tests/unit/handlers/test_run.py")
lane = Module("handlers.shard_queue", "tests/unit/handlers/test_by_key.py")
queues = Module("handlers.queues", "tests/unit/handlers/test_by_key.py")
watermark = Module("handlers.watermark", "tests/unit/handlers/test_watermark.py")
worker = Module("handlers.executor", "tests/unit/handlers/test_failing.py")

MUTANTS = (
    calls(
        "a record is done when its handler begins",
        RULE,
        "EachRecord.__call__",
        move("stint.done += 1", before="await handler(record)"),
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
        "Worker._resolve",
        replace(
            "await self._last_resort(stint, last); stint.done += 1",
            "stint.done += 1; stint.told -= 1; await self._last_resort(stint, last)",
        ),
        simulated=False,
    ),
    queues(
        "a key is handled by two at a time",
        "order per key",
        "ByKey._open",
        replace("busy.get(key)", "None"),
        simulated=False,
    ),
    lane(
        "a shard given up waits for its next try",
        "7 a hand-over waits for what is in user code only",
        "Lane.end",
        drop("self._over.set()"),
        "tests/unit/handlers/test_failing.py",
        simulated=False,
    ),
    calls(
        "a shard given up is handed out further",
        "7 nothing is handed out once it is revoked",
        "EachRecord.__call__",
        drop("lane.is_over"),
        simulated=False,
    ),
    calls(
        "a lapsed lease doesn't pause handlers",
        "4 nothing is handed out without a permit",
        "EachRecord.__call__",
        drop("moment >= lease.deadline"),
        simulated=False,
    ),
    lane(
        "user code that is through isn't told to a hand-over",
        "7 waits for what is in user code",
        "Lane.finish",
        drop("if self.is_over and not self.stints: ..."),
        simulated=False,
    ),
    worker(
        "a batch that fails is given up whole",
        "that record alone goes to a dead letter",
        "Worker._resolve",
        replace("stop - stint.done > 1", "stop - stint.done > 99"),
        simulated=False,
    ),
    lane(
        "memory of handled records isn't given back",
        "9 memory is bounded; K16",
        "Lane.finish",
        drop("self._buffer.give_back(self.holding, stint.size)"),
        simulated=False,
    ),
    buffer(
        "slow shards take the whole buffer",
        "9 one slow shard holds up no other; Go 29",
        "Buffer._takes_too_much",
        replace("has_some", "False"),
        simulated=False,
    ),
)
