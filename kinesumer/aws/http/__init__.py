"""Calls to Kinesis without botocore: connections, signatures, answers."""
