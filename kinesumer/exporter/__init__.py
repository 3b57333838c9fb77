"""What others can see of fleets, as metrics for Prometheus."""
