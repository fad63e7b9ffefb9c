"""The full-screen terminal face."""
