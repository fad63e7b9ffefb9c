"""How a session looks on disk: the source document's files, as pure functions of its events."""
