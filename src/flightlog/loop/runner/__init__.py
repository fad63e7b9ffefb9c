"""The impure part: session directories, locks, processes, and the one loop that drives them."""
