"""Analysis without a model: pure, offline, the same answer for the same digests."""
