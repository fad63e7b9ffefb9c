"""Issues: from a private draft to a public file."""
