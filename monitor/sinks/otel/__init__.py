"""Runs as OpenTelemetry's spans, metrics and logs."""
