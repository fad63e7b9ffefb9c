"""Git, asked by its own program: repositories, history, and trees of our own beside the user's."""
