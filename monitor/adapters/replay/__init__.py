"""Recorded chunks as a stream and as a model."""
