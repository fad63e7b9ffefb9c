"""What samples and replicates mean: shares, amounts, differences, each with how sure it is. Pure."""
