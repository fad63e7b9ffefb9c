"""Simulated sessions: the real decisions and driver with a seeded clock, processes and faults."""

from flightlog.loop.simulator.simulation import SimulationResult, run_simulation

__all__ = ["SimulationResult", "run_simulation"]
