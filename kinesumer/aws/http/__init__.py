"""Requests to Kinesis without botocore: connections, signatures and responses."""
