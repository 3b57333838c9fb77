"""Amazon Kinesis for PySpark: ``format("kinesumer")``."""
