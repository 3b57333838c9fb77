"""What tests of consumers need: both ports in memory, virtual time, faults."""
