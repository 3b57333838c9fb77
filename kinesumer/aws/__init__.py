"""Open AWS sessions, and implement ``kinesumer.ports`` with Kinesis and DynamoDB."""
