"""The records that a run writes into its session, and the run that is decided again from it."""
