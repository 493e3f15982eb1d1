"""The folder that file tools do not leave, and the encodings of its files."""
