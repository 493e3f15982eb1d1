"""Small tools that know nothing of a run: JSON forms, hashes, token estimates, quoting, checks."""
