"""What the proxy knows of the runs behind it, and of those behind other proxies."""
