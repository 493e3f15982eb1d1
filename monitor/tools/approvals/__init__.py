"""Which calls may be made: by rules, and by the answer of a person."""
