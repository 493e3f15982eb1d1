"""What a tool answers, as the result that the model reads."""
