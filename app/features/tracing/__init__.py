"""Traces for OpenTelemetry, an optional extra of the package."""
