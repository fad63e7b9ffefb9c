"""Values and errors; no I/O, no clock, no environment."""
