"""Serve Kinesis, DynamoDB and STS on one local endpoint, for tests and demos.

DynamoDB includes the streams of its tables. This needs the extra ``kinesumer[local]``.
"""
