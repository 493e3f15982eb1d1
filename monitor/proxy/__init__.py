"""The proxy: the same guard in front of any client, in any language."""
