"""Sign and send requests to Kinesis without botocore."""
