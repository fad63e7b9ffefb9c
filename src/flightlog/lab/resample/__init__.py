"""Send recorded requests to a model again, unchanged or edited, many times."""
