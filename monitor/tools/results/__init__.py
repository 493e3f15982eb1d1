"""The results that the model reads, made of the answers of tools."""
