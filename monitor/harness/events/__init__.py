"""The events of a run on their way to its reader and its sinks."""
