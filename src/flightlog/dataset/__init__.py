"""Training rows in git: extracted from recordings, written as shards that never conflict."""
