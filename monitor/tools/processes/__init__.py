"""Commands as processes: started, read, and ended with all that they have started."""
