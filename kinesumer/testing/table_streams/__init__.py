"""A model of DynamoDB Streams without I/O. Each call gets the time as an argument.

It follows the page "Change data capture for DynamoDB Streams" of DynamoDB's developer
guide, and the API reference of DynamoDB Streams (version 2012-08-10).
"""
