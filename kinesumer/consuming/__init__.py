"""Read owned shards, deliver their records to user code, and store positions."""
