"""What people on call do and see: all through the state store and Kinesis."""
