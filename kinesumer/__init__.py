"""Consume Amazon Kinesis streams together: many processes, one DynamoDB table."""
