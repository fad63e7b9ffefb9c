"""Model API formats."""
