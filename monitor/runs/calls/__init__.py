"""The calls that the model of a run makes: offered, carried out, and told about."""
