"""Capture a client's API calls with a proxy, read them back, and rebuild them from transcripts."""
