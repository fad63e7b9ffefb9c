"""Retro: analyze past conversations and sessions, and turn findings into issues."""
