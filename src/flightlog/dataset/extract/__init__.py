"""Extraction of dataset rows from sessions, commits and older layouts."""
