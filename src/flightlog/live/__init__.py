"""Live: running sessions, their cost and their health."""
