"""Breaks each promise on purpose, in a copy, and sees its test fail: a test that cannot fail shows nothing.

`make promises` does all of them, `python -m tools.promises R7` those of one promise; `make soak` does them too.
"""
