"""The one file people edit: read, changed value by value, never overwritten."""
