"""Composition root: the only reader of environment, clock and config."""
