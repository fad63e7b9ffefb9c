"""Detection and redaction of private values, tiers of files, the git guard, and consent."""
