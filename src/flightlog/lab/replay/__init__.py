"""Branch from a turn of a recorded session, with the recorded context."""
