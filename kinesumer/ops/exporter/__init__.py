"""Export metrics of apps for Prometheus."""
