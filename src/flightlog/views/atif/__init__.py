"""The Agent Trajectory Interchange Format: writing it from a session, reading it, finding what is wrong with it."""
