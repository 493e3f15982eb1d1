"""What the commands read: transcripts, conversations, samples."""
