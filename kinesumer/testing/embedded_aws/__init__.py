"""Serve Kinesis, DynamoDB and STS on one local endpoint, for tests and demos.

This needs the extra ``kinesumer[local]``.
"""
