"""Simulated sessions: the real decisions and driver with a seeded clock, processes and faults."""
