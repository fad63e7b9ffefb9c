"""Tracing: from one session, row, run or commit to everything that belongs to it."""
