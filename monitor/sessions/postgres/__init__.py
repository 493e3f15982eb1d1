"""Sessions in PostgreSQL, for processes on many hosts. Needs the extra `postgres`."""
