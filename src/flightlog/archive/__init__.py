"""All recordings of this machine."""
