"""Messages of other processes to the runs of a session, and the runs that wait for a person."""
