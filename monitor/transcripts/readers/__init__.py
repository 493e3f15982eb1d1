"""One file for each tool whose saved sessions are read. `registry` lists the readers."""
