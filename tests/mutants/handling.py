"""Handlers that ``run()`` calls: what is done, given up, and handed over."""

from __future__ import annotations

from functools import partial

from tests.mutants.mutant import mutant

# The shapes that the simulator draws by default iterate.
made = partial(mutant, simulated=False)
RULE = "9 the checkpoint passes nothing that isn't done; K1"

MUTANTS = (
    made(
        "a record is done when its handler begins",
        RULE,
        "handling/calls.py",
        "            await handler(record)\n            stint.done += 1\n",
        "            stint.done += 1\n            await handler(record)\n",
        "tests/handling/test_failing.py",
        "tests/handling/test_run.py",
    ),
    made(
        "what is done behind a gap counts as done",
        RULE,
        "handling/watermark.py",
        "        while self.value in self._ahead:\n",
        "        while self._ahead:\n            self.value = min(self._ahead)\n",
        "tests/handling/test_watermark.py",
    ),
    made(
        "a record counts as handled before its letter is stored",
        RULE,
        "handling/worker.py",
        "            await self._last_resort(stint, last)\n"
        "            stint.done += 1\n",
        "            stint.done += 1\n            stint.told -= 1\n"
        "            await self._last_resort(stint, last)\n",
        "tests/handling/test_failing.py",
    ),
    made(
        "a key is handled by two at a time",
        "order per key",
        "handling/queues.py",
        "            line = busy.get(key)\n",
        "            line = None\n",
        "tests/handling/test_by_key.py",
    ),
    made(
        "a shard given up waits for its next try",
        "7 a hand-over waits for what is in user code only",
        "handling/lane.py",
        "        self._over.set()\n",
        "",
        "tests/handling/test_failing.py",
    ),
    made(
        "a shard given up is handed out further",
        "7 nothing is handed out once it is revoked",
        "handling/calls.py",
        "moment >= breath.due or lane.is_over:",
        "moment >= breath.due:",
        "tests/handling/test_run.py",
    ),
    made(
        "a lapsed lease doesn't pause handlers",
        "4 nothing is handed out without a permit",
        "handling/calls.py",
        "if moment >= lease.deadline or moment >= breath.due or",
        "if moment >= breath.due or",
        "tests/handling/test_run.py",
    ),
    made(
        "user code that is through isn't told to a hand-over",
        "7 waits for what is in user code",
        "handling/lane.py",
        "        if self.is_over and not self.stints:\n"
        "            self._tell()\n"
        "            self.holding.hand_back()\n",
        "",
        "tests/handling/test_by_key.py",
    ),
    made(
        "a batch that fails is given up whole",
        "that record alone goes to a dead letter",
        "handling/worker.py",
        "        if stop - stint.done > 1:\n",
        "        if stop - stint.done > 99:\n",
        "tests/handling/test_failing.py",
    ),
    made(
        "memory of handled records isn't given back",
        "9 memory is bounded; K16",
        "handling/lane.py",
        "        self._buffer.give_back(self.holding, stint.size)\n",
        "",
        "tests/handling/test_by_key.py",
    ),
    made(
        "slow shards take the whole buffer",
        "9 one slow shard holds up no other; Go 29",
        "buffer.py",
        "        return has_some and 4 *",
        "        return False and 4 *",
        "tests/handling/test_run.py",
    ),
)
