"""Measures flightlog against named peers and floors, on transcripts made for it."""
