"""Stores of shared budgets."""
