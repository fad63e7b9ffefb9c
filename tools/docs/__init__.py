"""Documents made from the source: the reference, and the man pages."""
