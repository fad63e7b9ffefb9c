"""Retro and issue groups."""
