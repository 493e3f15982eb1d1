"""The proxy's own pages."""
