"""Rules and persons decide which calls may be made."""
