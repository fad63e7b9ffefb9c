"""Keeping recordings up to date."""
