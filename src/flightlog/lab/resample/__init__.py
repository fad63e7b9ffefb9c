"""Asking a model again what it was asked before, as it was or with one thing changed, many times over."""
