"""The calls of one response: in which order they are carried out, and the result of each."""
