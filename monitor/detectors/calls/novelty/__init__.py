"""Loops of calls, known by what each call and its result add to what the run has seen."""
