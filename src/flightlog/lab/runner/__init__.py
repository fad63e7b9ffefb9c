"""Carrying a run out: sessions in order and in parallel, in their trees, within a budget, through any crash."""
