"""Metrics and spans: names, the interface of the engine, and OpenTelemetry.

Only OpenTelemetry's API is used. It is loaded when a client starts, and does nothing
without an SDK.
"""
