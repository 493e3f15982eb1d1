"""Secrets, masked in what is shown and stored."""
