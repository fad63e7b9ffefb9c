"""Training rows in git: told from recordings, written as shards that never conflict, read as one."""
