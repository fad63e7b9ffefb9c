"""Analysis without a model: pure, offline, deterministic for the same digests."""
