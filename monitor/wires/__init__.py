"""The providers' forms of a conversation: recognised, read and checked here, and nowhere else.

One room for each form. No clock and no I/O.
"""
