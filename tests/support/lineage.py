"""Draw histories of splits and merges."""

from __future__ import annotations

from hypothesis import strategies as st

from kinesumer.core import lineage
from kinesumer.model.streams import HASH_KEYS, Shard

LAST = HASH_KEYS - 1


@st.composite
def histories(draw: st.DrawFn) -> list[Shard]:
    """Draw a stream's listing after some splits and merges."""
    shards = [Shard("s0", 0, LAST)]
    for step in range(draw(st.integers(0, 8))):
        open_ = lineage.leaves(shards)
        at = draw(st.integers(0, len(open_) - 1))
        name = f"s{len(shards)}"
        if step % 3 == 2 and at + 1 < len(open_):
            low, high = open_[at : at + 2]
            parents = (low.shard_id, high.shard_id)
            shards.append(Shard(name, low.first_hash, high.last_hash, parents))
        else:
            one = open_[at]
            middle = (one.first_hash + one.last_hash + 1) // 2
            parent = (one.shard_id,)
            shards.append(Shard(name, one.first_hash, middle - 1, parent))
            shards.append(Shard(f"s{len(shards)}", middle, one.last_hash, parent))
    return shards
