"""Stores of outages that many processes share."""
