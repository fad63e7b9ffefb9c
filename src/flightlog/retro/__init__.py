"""The retro room: look back over conversations and sessions, and act on what is found."""
