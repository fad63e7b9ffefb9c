"""Loops that are made up: the very core and driver of real ones, under a clock, processes and faults of a seed."""

from flightlog.loop.simulate.game import Game, play

__all__ = ["Game", "play"]
