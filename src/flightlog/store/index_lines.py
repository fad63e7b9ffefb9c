"""Placeholder."""
SCHEMA = ""
