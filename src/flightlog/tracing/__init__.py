"""Following one thing to all the others: what the rooms offer, joined by the places in sessions."""
