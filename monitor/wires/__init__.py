"""The providers' forms of a conversation: recognised and checked here, and read without loss.

Other programs write messages that are only similar to these forms; `monitor.transcripts` reads them.
"""
