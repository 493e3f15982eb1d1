"""The pieces of which streamed answers are made: server-sent events, arrays, binary messages."""
