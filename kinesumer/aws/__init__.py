"""The only place that knows AWS: sessions, Kinesis and DynamoDB behind the ports."""
