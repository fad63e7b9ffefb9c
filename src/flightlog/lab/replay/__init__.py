"""Going back to a turn of a recorded session, exactly, and on from there."""
