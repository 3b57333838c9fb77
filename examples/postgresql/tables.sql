-- The stored position of each shard, and the epoch of the owner that stored it. A row
-- is written in the transaction that writes the output.
CREATE TABLE kinesumer_positions (
    app text,
    stream_arn text,
    shard_id text,
    epoch bigint NOT NULL,
    position text,
    PRIMARY KEY (app, stream_arn, shard_id)
);

-- The output. Replace this table with your own.
CREATE TABLE orders (
    partition_key text,
    arrived_at timestamptz,
    data bytea NOT NULL
);
