"""What may leave: detection, redaction and tiers."""
