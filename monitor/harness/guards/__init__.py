"""The guard over the streams of a loop that the caller writes."""
