"""Documents generated from the source: the reference, the layer diagram and the man pages."""
