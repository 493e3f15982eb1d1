"""One request and its answer: judged, watched, ended."""
