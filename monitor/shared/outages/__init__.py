"""Stores of shared outages."""
