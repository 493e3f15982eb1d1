"""The parts that the integrations of several frameworks use."""
