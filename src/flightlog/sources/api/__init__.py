"""Captured API exchanges."""
