"""Texts that are kept outside the context, and the tools that read them."""
