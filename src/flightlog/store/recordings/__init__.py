"""Our append-only copies of what agents wrote."""
