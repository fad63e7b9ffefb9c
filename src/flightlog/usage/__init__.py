"""Tokens and cost: list the files, read what is new, digest each session, report."""
