-- How far each shard is stored, and by whom: written with the output, in one transaction.
CREATE TABLE kinesumer_positions (
    app text,
    stream_arn text,
    shard_id text,
    epoch bigint NOT NULL,
    position text,
    PRIMARY KEY (app, stream_arn, shard_id)
);

-- The output: yours will look otherwise.
CREATE TABLE orders (
    partition_key text,
    arrived_at timestamptz,
    data bytea NOT NULL
);
