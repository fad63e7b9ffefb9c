"""What git knows of a repository."""
