"""The retro room: looking back, and issues that are safe to publish."""
