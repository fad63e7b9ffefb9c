"""The API between a client and its model: captured by a proxy, read back, and rebuilt from transcripts."""
