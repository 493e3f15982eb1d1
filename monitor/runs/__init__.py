"""A whole run: the supervisor, its turns, its calls, its context, its record and its session."""
