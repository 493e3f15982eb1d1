"""How a history is made smaller without a model."""
