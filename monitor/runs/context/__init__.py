"""The context of a run, kept inside the model's window while the run goes on."""
