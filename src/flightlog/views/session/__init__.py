"""From the records of a session to its turns, its outline and its summary: the one fold."""
