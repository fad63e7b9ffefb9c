"""Claude Code: where its transcripts lie, and what their lines mean."""
