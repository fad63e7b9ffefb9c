"""Mechanical rename of classes, functions and methods by tables; deleted when the restructure ends."""
