"""The providers' forms of a conversation: recognised and checked here, and read without loss.

One room for each form. No clock and no I/O. Other programs write messages that are only similar to
these forms; `monitor.transcripts` reads those.
"""
