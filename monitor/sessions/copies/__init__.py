"""Copies of a session: as lines of JSON, and what is readable of a damaged one."""
