"""How large a conversation is, and how much of the model's window it fills."""
