"""What stands beside the runs of a session: messages to them, their questions to a person, and
results that come later.
"""
