"""The only package that writes files."""
