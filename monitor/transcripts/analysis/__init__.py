"""Recorded runs under the core: findings, savings, and limits with a promise."""
