"""Claude Code: the only code that knows its records, files, flags and payloads."""
