"""Loops that are made up: the very core and driver of real ones, under a clock, processes and faults of a seed."""

from flightlog.loop.simulator.simulation import SimulationResult, run_simulation

__all__ = ["SimulationResult", "run_simulation"]
