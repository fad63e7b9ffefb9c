"""Sessions to rows."""
