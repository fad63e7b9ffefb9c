"""The pure part: what a session adds up to, and what to do next. No clock, no chance, no files."""
