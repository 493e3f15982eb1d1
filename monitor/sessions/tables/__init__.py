"""The tables of a session: their schema, and the rows of its tree, calls, events and texts."""
