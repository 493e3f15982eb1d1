"""Messages of other processes to the runs of a session, results that come later, and waiting runs."""
