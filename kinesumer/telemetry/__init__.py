"""Metrics and spans: an interface for the engine, and its OpenTelemetry version."""
