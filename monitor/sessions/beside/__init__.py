"""What stands beside the runs of a session: messages to them, and their questions to a person."""
