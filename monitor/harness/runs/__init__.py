"""The run of a supervisor: its turns, its calls, its session."""
