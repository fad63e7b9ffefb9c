"""The dataset room: training rows in git."""
