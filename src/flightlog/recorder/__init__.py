"""Recorder: bring recordings up to date and report on them."""
