"""Placeholder."""

SCHEMA = ""
