"""How a history is made valid for every provider."""
