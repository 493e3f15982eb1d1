"""The inputs of the commands: transcripts, conversations, samples."""
