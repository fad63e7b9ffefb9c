"""Wiring: the only reader of environment, home directory, clock and config files."""
