"""All recordings of this machine: find, read, search, share and export sessions."""
