"""Exports of chat services."""
