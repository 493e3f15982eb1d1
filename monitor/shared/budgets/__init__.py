"""Stores of budgets that many processes share."""
