"""Issues: from a private draft to something that may be read by everybody."""
