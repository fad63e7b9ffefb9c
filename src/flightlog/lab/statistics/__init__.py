"""Estimates and tests over samples and replicates: shares, means, differences, with intervals."""
